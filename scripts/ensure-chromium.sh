#!/usr/bin/env bash
# Make sure there is a Chromium for the tests of HTML pages: install Debian's through apt if none is found.
# Prints its path, or nothing. Never fails: without one those tests are skipped, and say so.
set -u
names="chromium chromium-browser google-chrome google-chrome-stable"

find_chromium() {
    for name in $names; do
        command -v "$name" && return 0
    done
    return 1
}

find_chromium && exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "no Chromium found: run 'sudo apt-get install chromium' to test the HTML pages" >&2
    exit 0
fi
echo "no Chromium found; installing it" >&2
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq >&2
apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/tmp/hightide-chromium.log 2>&1 ||
    tail -n 5 /tmp/hightide-chromium.log >&2
find_chromium || echo "Chromium could not be installed: the HTML pages are not tested" >&2
exit 0
