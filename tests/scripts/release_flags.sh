#!/usr/bin/env bash
# Preset release compiles with the flags of the packages (dpkg-buildflags, packaging/deb/rules): what the tests run is what is
# shipped, and ccache has the packages' objects already.
#   release_flags.sh SOURCE_DIR
set -eu
cd "$1"
maintainer=$(sed -n 's/^export DEB_BUILD_MAINT_OPTIONS = //p' packaging/deb/rules)
flags() { DEB_BUILD_MAINT_OPTIONS=$maintainer dpkg-buildflags --get "$1"; }
preset() { jq -r --arg key "$1" '.configurePresets[] | select(.name == "release").cacheVariables[$key]' CMakePresets.json; }
same() {
  [ "$2" = "$3" ] && return
  echo "$1 of preset release (CMakePresets.json): $2"
  echo "of the packages (dpkg-buildflags): $3"
  exit 1
}
compile=$(preset CMAKE_CXX_FLAGS)
same CMAKE_CXX_FLAGS "${compile//"\${sourceDir}"/$PWD}" "$(flags CXXFLAGS) $(flags CPPFLAGS)"
same CMAKE_EXE_LINKER_FLAGS "$(preset CMAKE_EXE_LINKER_FLAGS)" "$(flags LDFLAGS)"
of_type=$(preset CMAKE_CXX_FLAGS_RELWITHDEBINFO)
grep -q -- "CMAKE_CXX_FLAGS_RELWITHDEBINFO=\"$of_type\"" packaging/deb/rules || { echo "packaging/deb/rules compiles not with '$of_type'"; exit 1; }
