#!/usr/bin/env bash
# Make sure a WebGPU adapter exists: if none is found, install Mesa's software Vulkan through apt.
# Usage: ensure-adapter.sh PYTHON     (an interpreter that has hightide installed)
# Never fails: without an adapter hightide runs on its NumPy references.
set -u
python=$1

has_adapter() { "$python" -c 'import sys, hightide; sys.exit(not hightide.adapters())' >/dev/null 2>&1; }

has_adapter && exit 0
echo "no WebGPU adapter found; installing Mesa's software Vulkan" >&2

packages="libvulkan1 mesa-vulkan-drivers"
if [ "$(id -u)" != 0 ]; then
    echo "not root: run 'sudo apt-get install $packages' for a GPU-less adapter; going on with the NumPy references" >&2
    exit 0
fi
if ! command -v apt-get >/dev/null; then
    echo "no apt-get here: install a Vulkan driver by hand; going on with the NumPy references" >&2
    exit 0
fi

export DEBIAN_FRONTEND=noninteractive
apt-get update -qq >&2
release=()
. /etc/os-release
if [ "${ID:-}" = debian ] && [ "${VERSION_ID:-}" = 12 ]; then
    # Debian 12's Mesa 22.3 reads storage buffers five to seven times slower than the backport.
    if ! apt-cache policy | grep -q 'n=bookworm-backports'; then
        mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Codename: bookworm' | head -n 1)
        keyring=/usr/share/keyrings/debian-archive-keyring.gpg
        echo "deb [signed-by=$keyring] $mirror bookworm-backports main" >/etc/apt/sources.list.d/bookworm-backports.list
        apt-get update -qq >&2
    fi
    apt-cache policy | grep -q 'n=bookworm-backports' && release=(-t bookworm-backports)
fi
# shellcheck disable=SC2086
apt-get install -y -qq --no-install-recommends "${release[@]}" $packages >/tmp/hightide-apt.log 2>&1 ||
    tail -n 5 /tmp/hightide-apt.log >&2

if has_adapter; then
    "$python" -c 'import hightide; print("adapter:", hightide.adapters()[0].name)' >&2
else
    echo "still no adapter; going on with the NumPy references" >&2
fi
exit 0
