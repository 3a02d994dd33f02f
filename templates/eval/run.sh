#!/usr/bin/env bash
# The evaluation: its packages and data are made ready while the weights load, then it waits for its turn.
set -Eeuo pipefail
shopt -s inherit_errexit

SRTGEN_BUNDLE="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)"
export SRTGEN_BUNDLE

# shellcheck source-path=SCRIPTDIR source=../lib/role.sh
. "${SRTGEN_BUNDLE}/lib/role.sh"
# shellcheck source-path=SCRIPTDIR source=../lib/eval.sh
. "${SRTGEN_BUNDLE}/lib/eval.sh"
# shellcheck source=/dev/null
. "${SRTGEN_BUNDLE}/eval/plan.sh"

eval_prepare
enter_role eval
eval_measure
