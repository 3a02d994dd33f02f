# shellcheck shell=bash
# The text of this file is what the preflight step runs on every node, so that a node that cannot
# see the bundle still reports. Arguments: the bundle's folder, the plan's id, then those of node_check.py.
# A report line is: node, "check", name, ok|fail|note|skip, text; separated by tabs.
set -uo pipefail
bundle="$1"
plan_id="$2"
shift 2

report() {
  printf '%s\tcheck\t%s\t%s\t%s\n' "${SLURMD_NODENAME}" "$1" "$2" "$3"
}

tools=ok
tools_text=''
for tool in bash python3 curl timeout; do
  command -v "${tool}" >/dev/null || {
    tools=fail
    tools_text+="${tools_text:+, }${tool} is missing"
  }
done
if [[ ! -r "${bundle}/manifest.json" ]]; then
  report bundle fail "${bundle} is not visible here: is it on a shared file system?"
elif [[ "$(<"${bundle}/manifest.json")" != *"\"id\": \"${plan_id}\""* || -e "${bundle}/.srtgen-writing" ]]; then
  report bundle fail "${bundle} holds another version of the bundle here"
elif [[ "${tools}" == fail ]]; then
  report tools fail "${tools_text}"
else
  python3 -E -s -B "${bundle}/lib/node_check.py" --bundle "${bundle}" "$@" || {
    tools_text="the node's checks broke off with code $?"
    python3 -E -s -c 'import sys; sys.exit(sys.version_info < (3, 8))' 2>/dev/null ||
      tools_text="python3 is older than 3.8: $(python3 --version 2>&1)"
    report tools fail "${tools_text}"
  }
fi
printf '%s\tend\n' "${SLURMD_NODENAME}"
