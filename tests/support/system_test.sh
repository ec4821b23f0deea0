# What the system tests in shell share; sourced with the test's name after `set -u`. Needs root.
#   $name, ${roots[@]}  a cgroup of the test's own: its path, and the hierarchies that have one (v2, or three of v1)
#   $tmp                its folder; ${pids[@]}: its processes. All of it is gone at the end, however it ends.
test_name=$1
name=flashd-test-$test_name-$$
tmp=$(mktemp -d)
pids=()
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
  roots=(/sys/fs/cgroup)
  echo "+cpu +memory" > /sys/fs/cgroup/cgroup.subtree_control
else
  roots=(/sys/fs/cgroup/cpu /sys/fs/cgroup/cpuacct /sys/fs/cgroup/memory)
fi

cleanup() {
  local p r
  for p in "${pids[@]}"; do kill -9 "$p" 2> /dev/null; done
  wait 2> /dev/null
  for r in "${roots[@]}"; do
    for _ in 1 2 3 4 5; do
      rmdir "$r/$name"/*/ "$r/$name" 2> /dev/null
      [ -d "$r/$name" ] || break
      sleep 0.2
    done
  done
  rm -rf "$tmp"
}
trap cleanup EXIT

# Ends the test, with what its programs logged.
fail() {
  tail -n 100 "$tmp"/*.log >&2
  echo "$test_name: $*" >&2
  exit 1
}

# until_true SECONDS COMMAND...
until_true() {
  local end=$((SECONDS + $1))
  shift
  until "$@"; do
    [ "$SECONDS" -lt "$end" ] || return 1
    sleep 0.1
  done
}

# in_cgroup PATH COMMAND...: becomes the command in that cgroup of every hierarchy. For a subshell in the background.
in_cgroup() {
  local path=$1 r
  shift
  for r in "${roots[@]}"; do echo "$BASHPID" > "$r/$path/cgroup.procs" || exit 1; done
  exec "$@"
}

# A system bus of the test's own, which its programs find as the machine's.
start_bus() {
  cat > "$tmp/bus.conf" << EOF
<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>system</type>
  <listen>unix:path=$tmp/bus</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow user="root"/>
    <allow own="org.flashd"/>
    <allow own="org.flashd.Sync"/>
    <allow send_destination="*" eavesdrop="false"/>
    <allow receive_sender="*"/>
  </policy>
</busconfig>
EOF
  dbus-daemon --config-file="$tmp/bus.conf" --nofork 2> /dev/null &
  pids+=($!)
  until_true 10 test -S "$tmp/bus" || fail "the private bus did not start"
  export DBUS_SYSTEM_BUS_ADDRESS=unix:path=$tmp/bus
}
