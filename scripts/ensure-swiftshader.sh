#!/usr/bin/env bash
# Make SwiftShader available, a second software Vulkan driver that shares no code with Mesa, and print the path of
# its driver file on stdout:
#
#     VK_DRIVER_FILES=$(scripts/ensure-swiftshader.sh) hightide doctor
#
# It comes with Debian's and Ubuntu's chromium packages. Nothing is installed: the two files are taken out of the
# package, into the cache folder, so that root is not needed.
set -eu
folder=${XDG_CACHE_HOME:-$HOME/.cache}/hightide/swiftshader
driver=$folder/vk_swiftshader_icd.json

for installed in /usr/lib/chromium /usr/lib/chromium-browser /opt/google/chrome; do
    if [ -f "$installed/libvk_swiftshader.so" ] && [ -f "$installed/vk_swiftshader_icd.json" ]; then
        echo "$installed/vk_swiftshader_icd.json"
        exit 0
    fi
done
if [ -f "$folder/libvk_swiftshader.so" ] && [ -f "$driver" ]; then
    echo "$driver"
    exit 0
fi
if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
    echo "SwiftShader is fetched from Debian's chromium-common: there is no apt-get here" >&2
    exit 1
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
fetch() { apt-get download -qq chromium-common >&2; }
if ! fetch 2>/dev/null; then
    [ "$(id -u)" != 0 ] || apt-get update -qq >&2
    fetch || { echo "chromium-common could not be fetched; as root, run apt-get update first" >&2; exit 1; }
fi
mkdir -p "$folder"
dpkg-deb --fsys-tarfile chromium-common_*.deb | tar -x --strip-components=4 \
    ./usr/lib/chromium/libvk_swiftshader.so ./usr/lib/chromium/vk_swiftshader_icd.json
mv libvk_swiftshader.so vk_swiftshader_icd.json "$folder/" # the driver file last: with it the library is there
echo "$driver"
