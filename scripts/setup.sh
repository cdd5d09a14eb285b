# shellcheck shell=bash
# Sourced by scripts/*.sh and .ci/run: installs what is missing, configures and builds, all without a word on standard
# output and without reading standard input. Environment: DRIFTLESS_PRESET, a preset of CMakePresets.json.

set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
preset=${DRIFTLESS_PRESET:-release}
build=$root/build/$preset
libraries=(libeigen3-dev nlohmann-json3-dev doctest-dev libcli11-dev)

say() { echo "$*" >&2; }

# quietly COMMAND...: runs it, and shows what it printed only if it fails.
quietly() {
  local log status=0
  log=$(mktemp)
  "$@" </dev/null >"$log" 2>&1 || status=$?
  if [ "$status" -ne 0 ]; then cat "$log" >&2; fi
  rm -f "$log"
  return "$status"
}

as_root() { if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo -n "$@"; fi; }

# install_packages NAME...: installs those of the Debian packages that are missing; fails where apt may not.
install_packages() {
  local name missing=()
  for name in "$@"; do
    dpkg-query -W -f '${db:Status-Status}\n' "$name" 2>/dev/null | grep -qx installed || missing+=("$name")
  done
  if [ "${#missing[@]}" -eq 0 ]; then return; fi
  say "Missing: ${missing[*]}"
  command -v apt-get >/dev/null && as_root true 2>/dev/null || return
  say "Installing with apt-get"
  quietly as_root apt-get update &&
    quietly as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}"
}

# configure [CMAKE_OPTION...]
configure() {
  local packages=("${libraries[@]}")
  if ! command -v make >/dev/null && ! command -v ninja >/dev/null; then packages+=(make); fi
  install_packages "${packages[@]}" || say "apt-get cannot install here: CMake fetches the libraries"
  say "Configuring build/$preset"
  (cd "$root" && quietly cmake --preset "$preset" -B "$build" "$@")
}

# build_targets TARGET...: brings them up to date, from nothing if need be, and says how far that is.
build_targets() {
  local configured=$build/.configured log=$build/build.log status=0
  if [[ ! $configured -nt $root/CMakePresets.json ]]; then
    configure
    touch "$configured"
    say "Building $* in build/$preset"
  fi
  cmake --build "$build" --parallel "$(nproc)" --target "$@" </dev/null 2>&1 | tee "$log" |
    sed -nu 's/^\[ *\([^]]*\)\] Building .*/building: \1/p' >&2 || status=$?
  if [ "$status" -ne 0 ]; then cat "$log" >&2; fi
  return "$status"
}
