#!/usr/bin/env bash
# Stops the Slurm that start.sh started: its daemons, by their recorded pids, and what jobs left
# running on its nodes. Nothing is ended by name.
#
# usage: stop.sh [STATE]     (default: $SLURM_LOCAL_DIR)
# A state folder that start.sh made by mktemp is removed, unless SLURM_LOCAL_KEEP is set; one that
# was given to it stays, for its logs.
# shellcheck source-path=SCRIPTDIR
set -Eeuo pipefail
shopt -s inherit_errexit
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=lib.sh
. "${here}/lib.sh"

# An srun outside of the nodes would wait for ever for a controller that is gone; told that its job is over, it
# ends by itself within seconds.
cancel_jobs() {
    local -a jobs enter
    pid_of slurmctld >/dev/null || return 0
    export SLURM_CONF=${dir}/slurm.conf
    enter_cmd hub
    mapfile -t jobs < <(timeout 2 ${enter[@]+"${enter[@]}"} squeue -h -o %A 2>/dev/null)
    ((${#jobs[@]})) || return 0
    timeout 2 ${enter[@]+"${enter[@]}"} scancel "${jobs[@]}" 2>/dev/null || true
    sleep 0.2
}

kill_matching() {
    local pattern=$1 file
    for file in "${dir}"/pids/*; do
        # shellcheck disable=SC2053  # a pattern on purpose
        if [[ ${file##*/} == ${pattern} ]]; then kill_recorded "${file##*/}"; fi
    done
}

main() {
    local file
    temp=0
    load_state "${1:-}"
    shopt -s extglob
    cancel_jobs
    # The daemons first, so that none reacts to nodes that go away.
    kill_matching '!(ns-*)'
    wait_for 5 clear_node || log "warning: some processes on the nodes would not end"
    kill_matching 'ns-*'
    for file in "${dir}"/pids/*; do
        wait_for 5 gone "${file##*/}" || log "warning: ${file##*/} would not end"
    done
    rm -rf "${dir}/pids"
    mkdir "${dir}/pids"
    if ((temp)) && [[ -z ${SLURM_LOCAL_KEEP:-} ]]; then rm -rf "${dir}"; fi
}

main "$@"
