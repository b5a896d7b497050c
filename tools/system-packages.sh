#!/usr/bin/env bash
# Checks for packages that pip cannot install: Python's venv module, Qt's libraries and, without a
# display, a virtual one.
#
# usage: tools/system-packages.sh PYTHON
#
# On Debian and Ubuntu, root installs missing packages; other users get their names.
set -euo pipefail
python=$1

# macOS has all of them.
[[ $(uname -s) == Linux ]] || exit 0

missing=()

needs_library() { # soname, package
    grep -qF "$1 " <<<"$known_libraries" || missing+=("$2")
}

needs_command() { # command, package
    command -v "$1" >/dev/null || missing+=("$2")
}

known_libraries=$(PATH=$PATH:/usr/sbin:/sbin ldconfig -p)

# Libraries that ldd lists for PyQt6's modules and its xcb platform plugin.
needs_library libEGL.so.1 libegl1
needs_library libGL.so.1 libgl1
needs_library libX11-xcb.so.1 libx11-xcb1
needs_library libdbus-1.so.3 libdbus-1-3
needs_library libfontconfig.so.1 libfontconfig1
needs_library libglib-2.0.so.0 libglib2.0-0
needs_library libxcb-cursor.so.0 libxcb-cursor0
needs_library libxcb-glx.so.0 libxcb-glx0
needs_library libxcb-icccm.so.4 libxcb-icccm4
needs_library libxcb-image.so.0 libxcb-image0
needs_library libxcb-keysyms.so.1 libxcb-keysyms1
needs_library libxcb-randr.so.0 libxcb-randr0
needs_library libxcb-render-util.so.0 libxcb-render-util0
needs_library libxcb-shape.so.0 libxcb-shape0
needs_library libxcb-shm.so.0 libxcb-shm0
needs_library libxcb-sync.so.1 libxcb-sync1
needs_library libxcb-util.so.1 libxcb-util1
needs_library libxcb-xfixes.so.0 libxcb-xfixes0
needs_library libxcb-xkb.so.1 libxcb-xkb1
needs_library libxkbcommon-x11.so.0 libxkbcommon-x11-0
[[ -d /usr/share/fonts ]] || missing+=(fonts-dejavu-core)

if [[ -z ${DISPLAY-}${WAYLAND_DISPLAY-} ]]; then
    needs_command xvfb-run xvfb
    needs_command xauth xauth
    needs_library libGLX_mesa.so.0 libglx-mesa0
fi

"$python" -c 'import ensurepip, venv' 2>/dev/null ||
    missing+=("$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')")

[[ ${#missing[@]} -gt 0 ]] || exit 0

install=(apt-get install --yes --no-install-recommends)
if ! command -v apt-get >/dev/null; then
    echo "Please install what provides these Debian packages here: ${missing[*]}" >&2
    exit 1
elif [[ $EUID -ne 0 ]]; then
    printf '%s\n' "Some system packages are missing. Please run, then try again:" \
        "  sudo ${install[*]} ${missing[*]}" >&2
    exit 1
fi

export DEBIAN_FRONTEND=noninteractive
apt-get update
"${install[@]}" "${missing[@]}"
