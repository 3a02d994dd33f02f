#!/usr/bin/env bash
# Fetch what the evaluation needs into offline/, on a machine with a network: wheels for the container's Python
# and the tasks' data (from the hub, or from the folder or URL in SRTGEN_TASK_DATA). May be run again at any time.
set -Eeuo pipefail
shopt -s inherit_errexit

SRTGEN_BUNDLE="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)"
export SRTGEN_BUNDLE

[[ -r "${SRTGEN_BUNDLE}/eval/plan.sh" ]] || {
  printf 'prefetch.sh: this bundle has no evaluation, nothing to fetch\n' >&2
  exit 1
}
# shellcheck source=/dev/null
. "${SRTGEN_BUNDLE}/eval/plan.sh"

exec python3 -BsE "${SRTGEN_BUNDLE}/lib/eval_prefetch.py" "$@"
