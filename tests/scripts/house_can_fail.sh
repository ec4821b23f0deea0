#!/usr/bin/env bash
# scripts/house must see what is planted in a made tree, nothing in what only looks like it, and fail above its ceilings;
# scripts/check_layers must fail with it.
set -u
here=$(cd "$(dirname "$0")/../.." && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
bad() { echo "house_can_fail: $*"; exit 1; }
mkdir -p "$tmp"/{cmake,core,policy,agents,daemon,link,lab/sim/tasks,tests/policy}
cp "$here/cmake/layers.txt" "$tmp/cmake/"
counted() { "$here/scripts/house" --list "$tmp" | grep -c "^$1: "; }

# At home, in the laboratory, in a comment, or a name of it that asks nothing.
echo 'bool f(Task t) { return t == Task::CpuFrequency; }' | tee "$tmp/core/names.cc" "$tmp/lab/sim/tasks/a.cc" > "$tmp/policy/task.cc"
cp "$tmp/core/names.cc" "$tmp/tests/policy/a.cc"
echo 'bool f(KnobKind k) { return k == KnobKind::CpuLimit; }' > "$tmp/core/knob.h"
echo 'struct S { virtual ~S(); };' > "$tmp/core/ports.h"
cat > "$tmp/policy/a.cc" <<'C'
// if (task == Task::CpuFrequency): a comment
Task task = Task::CpuFrequency;  // virtual, as Task::CpuFrequency == 1
KnobKind knob = KnobKind::CpuLimit;
int virtually = 1;
C
echo 'std::visit([](const auto& m) { return check(m); }, message);' > "$tmp/link/a.cc"
for rule in task knob algorithm virtual long; do
  [ "$(counted $rule)" = 0 ] || { "$here/scripts/house" --list "$tmp"; bad "$rule: counted what is none"; }
done
"$here/scripts/check_layers" "$tmp" > /dev/null || bad "a clean tree was refused"

sees() {  # RULE FILE: reads the code, each line or pair of lines of which is one of them
  local rule=$1 file=$2 before after
  before=$(counted "$rule")
  cat > "$tmp/$file"
  after=$(counted "$rule")
  [ $((after - before)) = "$3" ] || { "$here/scripts/house" --list "$tmp"; bad "$rule: $after - $before in $file, not $3"; }
}
sees task lab/sim/b.cc 1 <<'C'
if (pair.task() == Task::ResourceLimits) return;
C
sees task policy/b.cc 5 <<'C'
if (task == Task::ResourceLimits) return;
if (Task::CpuFrequency != task) return;
case Task::CpuFrequency: return;
return a.task ==
       Task::CpuFrequency;
return x ? flash::Task::CpuFrequency == task : 0;
C
sees knob policy/c.cc 2 <<'C'
if (kind == KnobKind::MemoryLimit) return;
case KnobKind::CpuLimit: return;
C
sees algorithm agents/a.cc 5 <<'C'
if (std::get_if<Ddpg>(&learner)) return;
if (std::holds_alternative<QLearning>(learner)) return;
std::visit(f, learner);
if constexpr (std::is_same_v<T, Ddpg>) return;
if (options.method == "bcq") return;
C
sees virtual daemon/a.h 1 <<< 'struct S { virtual void f() = 0; };'
yes '// a line' | head -601 > "$tmp/daemon/long.cc"
[ "$(counted long)" = 1 ] || bad "a long file was not seen"

# One above the ceiling, of each rule in turn.
for rule in task knob algorithm virtual long; do
  ceiling=$("$here/scripts/house" "$tmp" | sed -n "s/^house: $rule .* of at most //p")
  mkdir -p "$tmp/core/more"
  for i in $(seq $((ceiling + 1))); do
    case $rule in
      task) echo 'if (t == Task::CpuFrequency) return;' > "$tmp/core/more/$i.cc" ;;
      knob) echo 'if (k == KnobKind::CpuLimit) return;' > "$tmp/core/more/$i.cc" ;;
      algorithm) echo 'if (std::get_if<Ddpg>(&l)) return;' > "$tmp/core/more/$i.cc" ;;
      virtual) echo 'virtual void f();' > "$tmp/core/more/$i.cc" ;;
      long) cp "$tmp/daemon/long.cc" "$tmp/core/more/$i.cc" ;;
    esac
  done
  "$here/scripts/house" "$tmp" > "$tmp/said" && bad "$rule: $((ceiling + 1)) were allowed"
  grep -q "house --list | grep ^$rule:" "$tmp/said" || bad "$rule: nothing says where"
  "$here/scripts/check_layers" "$tmp" > /dev/null && bad "$rule: check_layers did not fail with it"
  rm -r "$tmp/core/more"
done
rm "$tmp/lab/sim/b.cc" "$tmp/policy/b.cc" "$tmp/policy/c.cc" "$tmp/agents/a.cc" "$tmp/daemon/a.h" "$tmp/daemon/long.cc"
"$here/scripts/check_layers" "$tmp" > /dev/null || bad "what is put right is still refused"
exit 0
