"""The P-states of the guest's processors: one table, read by the ACPI table and by the throttle.

QEMU has no frequency scaling. An SSDT gives each processor ACPI P-states whose control register is
an I/O port; a write to the port arrives on the host through isa-debugcon, where throttle.py makes
the vCPU slower by the same ratio.
"""

import pathlib
import subprocess

# Highest first, as _PSS demands (ACPI 6.4, 8.4.5.2). The index is the value written to the port.
FREQUENCIES_MHZ = (3000, 2600, 2200, 1800, 1400, 1000)
MAX_MHZ = FREQUENCIES_MHZ[0]

VCPUS = 2
# One port per processor, and the rig's own register: bit n makes the frequency of processor n physical; without it
# the vCPU runs as fast as the host can.
PSTATE_PORTS = tuple(0xE0 + cpu for cpu in range(VCPUS))
ARM_PORT = 0xE8


def _processor(cpu: int) -> str:
    states = ",\n".join(
        f"            Package () {{ {mhz}, {mhz * 10}, 10, 10, {n}, {n} }}"
        for n, mhz in enumerate(FREQUENCIES_MHZ)
    )
    register = (
        "ResourceTemplate () { Register (SystemIO, 8, 0, 0x%02X) }" % PSTATE_PORTS[cpu]
    )
    return f"""
    Scope (\\_SB.CPUS.C{cpu:03d}) {{
        Name (_PPC, 0)
        Name (_PCT, Package () {{
            {register},
            {register}
        }})
        Name (_PSS, Package () {{
{states}
        }})
    }}"""


def ssdt_source() -> str:
    """The SSDT in ASL. QEMU's own DSDT names the processors \\_SB.CPUS.C000 and so on."""
    externals = "\n".join(
        f"    External (\\_SB.CPUS.C{cpu:03d}, DeviceObj)" for cpu in range(VCPUS)
    )
    bodies = "".join(_processor(cpu) for cpu in range(VCPUS))
    return (
        'DefinitionBlock ("", "SSDT", 2, "FLASHD", "PSTATES", 1)\n'
        f"{{\n{externals}\n{bodies}\n}}\n"
    )


def compile_ssdt(directory: pathlib.Path) -> pathlib.Path:
    source = directory / "pstates.asl"
    source.write_text(ssdt_source())
    done = subprocess.run(
        ["iasl", "-p", str(directory / "pstates"), str(source)],
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise RuntimeError(f"iasl refused the SSDT:\n{done.stdout}{done.stderr}")
    return directory / "pstates.aml"
