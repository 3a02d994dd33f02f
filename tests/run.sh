#!/usr/bin/env bash
# Runs every test in an environment of its own; further words go to pytest.
set -Eeuo pipefail
shopt -s inherit_errexit

cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
venv="${SRTGEN_TEST_VENV:-.venv-test}"
[[ -x "${venv}/bin/python" ]] || python3 -m venv "${venv}"
"${venv}/bin/python" -m pip install --quiet --editable '.[test]'
exec "${venv}/bin/python" -m pytest -n 2 --dist loadgroup "$@"
