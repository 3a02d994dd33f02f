# shellcheck shell=bash
# What start.sh, stop.sh and node.sh share: recorded processes and nodes. Sourced, never run.
#
# The state folder ($SLURM_LOCAL_DIR):
#   local.conf    what start.sh decided (mode, nodes, net, ...), read back by load_state
#   pids/NAME     "PID STARTTIME" of each process that these scripts started
#   log/          a log per daemon, and fakepyxis.jsonl
#   slurm.conf gres.conf cgroup.conf plugstack.conf hosts resolv.conf env.sh
#   run/ state/ spool/ munge/ dev/ bin/ containers/ private/

export PATH="${PATH}:/usr/sbin:/sbin"

log() { printf 'slurm-local: %s\n' "$*" >&2; }

die() {
    log "error: $*"
    exit 1
}

# Start time of a process in clock ticks since boot. Fails for a process that is gone, and for a zombie:
# where PID 1 is no init, nobody reaps the daemons that are ended here.
proc_start() {
    local pid=$1 stat
    local -a fields
    { stat=$(<"/proc/${pid}/stat"); } 2>/dev/null || return 1
    read -ra fields <<<"${stat##*) }"
    [[ ${fields[0]} != [ZX] ]] || return 1
    printf '%s\n' "${fields[19]}"
}

# Prints the pid that was recorded under a name, if that very process still lives.
pid_of() {
    local name=$1 pid start
    { read -r pid start <"${dir}/pids/${name}"; } 2>/dev/null || return 1
    [[ $(proc_start "${pid}") == "${start}" ]] || return 1
    printf '%s\n' "${pid}"
}

gone() { ! pid_of "$1" >/dev/null; }

# spawn NAME COMMAND...: a daemon in a session of its own, its pid recorded. COMMAND must stay in the foreground.
spawn() {
    local name=$1 start
    shift
    setsid "$@" </dev/null >>"${dir}/log/${name}.out" 2>&1 &
    disown
    start=$(proc_start "$!") || die "${name} ended at once: $(tail -n 3 "${dir}/log/${name}.out")"
    printf '%s %s\n' "$!" "${start}" >"${dir}/pids/${name}"
}

kill_recorded() {
    local name=$1 pid
    pid=$(pid_of "${name}") || return 0
    kill -s KILL "${pid}" 2>/dev/null || true
}

# wait_for SECONDS COMMAND...: polls until COMMAND succeeds.
wait_for() {
    local end=$((${EPOCHREALTIME/[.,]/} + $1 * 1000000))
    shift
    until "$@"; do
        ((${EPOCHREALTIME/[.,]/} < end)) || return 1
        sleep 0.05
    done
}

# Reads back what start.sh wrote. Sets dir, mode, nodes, net and the rest of local.conf.
load_state() {
    dir=${1:-${SLURM_LOCAL_DIR:-}}
    [[ -n ${dir} ]] || die "name the state folder, or set SLURM_LOCAL_DIR"
    [[ -f ${dir}/local.conf ]] || die "${dir} is not a state folder of start.sh"
    dir=$(cd "${dir}" && pwd -P)
    mode='' nodes=''
    # shellcheck source=/dev/null  # written by start.sh at run time
    . "${dir}/local.conf"
}

# Sets the array "enter" to a prefix that runs a command in the namespaces of a node, or of "hub", the
# controller's side. The array stays empty where there is nothing to enter.
enter_cmd() {
    local node=$1 pid
    local -a spaces
    enter=()
    case ${mode}:${node} in
    plain:* | hosts:hub) return 0 ;;
    netns:hub) spaces=(--net) ;;
    netns:*) spaces=(--net --uts --mount) ;;
    hosts:*) spaces=(--uts --mount) ;;
    *) die "unknown mode ${mode}" ;;
    esac
    pid=$(pid_of "ns-${node}") || die "the namespace of ${node} is gone"
    enter=(nsenter "--target=${pid}" "${spaces[@]}" --)
}

start_slurmd() {
    local node=$1
    local -a enter
    gone "slurmd-${node}" || die "slurmd of ${node} is already running"
    enter_cmd "${node}"
    SLURM_CONF=${dir}/slurm.conf spawn "slurmd-${node}" ${enter[@]+"${enter[@]}"} slurmd -D -N "${node}"
}

# Reads one variable of the environment that another process was started with.
proc_env() {
    local pid=$1 name=$2
    { tr '\0' '\n' <"/proc/${pid}/environ" | sed -n "s/^${name}=//p" | head -n 1; } 2>/dev/null
}

# node_pids [NODE]: all that runs on one node, or on any: slurmd, slurmstepd, the jobs' own processes and what
# these left behind. The host name namespace tells; in plain mode, which has none, the environment that slurmd gives.
node_pids() {
    local want=${1:-}
    local -a names
    if [[ ${mode} == plain ]]; then
        plain_node_pids "${want}"
    else
        read -ra names <<<"${want:-${nodes}}"
        space_pids "${names[@]}"
    fi
}

# Prints the pids in the namespaces of some nodes, but for those that only hold the namespaces open. A node that has
# not left the machine's own namespace yet has no processes: what is listed here may be killed.
space_pids() {
    local node pid own space path
    local -A ours=()
    own=$(stat -Lc %i /proc/self/ns/uts)
    for node in "$@"; do
        pid=$(pid_of "ns-${node}") || continue
        space=$(stat -Lc %i "/proc/${pid}/ns/uts") || continue
        [[ ${space} != "${own}" ]] || continue
        ours[${space}]=${pid}
    done
    while read -r space path; do
        pid=${path#/proc/}
        pid=${pid%%/*}
        if [[ -n ${ours[${space}]:-} && ${ours[${space}]} != "${pid}" ]]; then printf '%s\n' "${pid}"; fi
    done < <(stat -Lc '%i %n' /proc/[0-9]*/ns/uts 2>/dev/null || true)
}

plain_node_pids() {
    local want=$1 pid
    for pid in /proc/[0-9]*; do
        pid=${pid#/proc/}
        [[ ${pid} != "$$" && ${pid} != "${BASHPID}" ]] || continue
        if runs_on_plain_node "${pid}" "${want}"; then printf '%s\n' "${pid}"; fi
    done
}

runs_on_plain_node() {
    local pid=$1 want=$2 node exe
    [[ $(proc_env "${pid}" SLURM_CONF) == "${dir}/slurm.conf" ]] || return 1
    node=$(proc_env "${pid}" SLURMD_NODENAME)
    exe=$(readlink "/proc/${pid}/exe") || return 1
    [[ -n ${node} || ${exe} == */slurmstepd* ]] || return 1
    [[ -z ${want} || ${node} == "${want}" ]]
}

# Kills all that runs on a node (default: on all). A job may be forking: true only when nothing was left to kill.
clear_node() {
    local -a pids
    mapfile -t pids < <(node_pids "$@")
    ((${#pids[@]})) || return 0
    kill -s KILL "${pids[@]}" 2>/dev/null || true
    return 1
}
