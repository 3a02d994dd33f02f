#!/usr/bin/env bash
# Starts a real Slurm with N nodes on this one machine: no systemd, nothing in /etc.
# Prints shell "export" lines on standard output:
#
#   exports=$(./start.sh 3) && eval "$exports"; sbatch job.sh; ./stop.sh
#
# usage: start.sh [--plain|--hosts|--netns] [--acct] [N]   (N: 1..90, default 4)
#   --hosts  each node has its own host name, /etc/hosts and loopback address; all share
#            one network (the default where namespaces are allowed)
#   --netns  as --hosts, and each node has its own network: own eth0, own ports, no way out.
#            The printed PATH wraps the Slurm commands so that they reach the controller.
#   --plain  no namespaces at all (the default where they are not allowed)
#   --acct   with accounting (slurmdbd on a MariaDB of its own), for sacct
#
# Settings (environment):
#   SLURM_LOCAL_DIR       state folder (default: a new one, made by mktemp)
#   SLURM_LOCAL_PORT      first of 100 TCP ports (default: the first free block)
#   SLURM_LOCAL_NET       first three octets of the nodes' addresses
#                         (default 127.77.K, K differs per cluster)
#   SLURM_LOCAL_CPUS=16 SLURM_LOCAL_MEM=64000 SLURM_LOCAL_GPUS=8   per node, all fake
#   SLURM_LOCAL_SELECT=CR_Core_Memory   what is consumable
#   SLURM_LOCAL_KILLWAIT=5   seconds from SIGTERM to SIGKILL (Slurm's own default: 30)
#   SLURM_LOCAL_DOWN=10      seconds until a silent node is DOWN (SlurmdTimeout)
#   SLURM_LOCAL_CONF      more lines for slurm.conf
#   SLURM_LOCAL_PRIVATE   folders that every node gets its own empty copy of,
#                         such as "/tmp /dev/shm" (not in plain mode)
#   SLURM_LOCAL_TIMEOUT=30   seconds to wait until all nodes are idle
#
# Needs Debian's slurm-wlm and munge; gcc and libslurm-dev for fakepyxis (left out with a
# warning if they are missing); iproute2 for --netns; slurmdbd and mariadb-server for --acct.
# shellcheck source-path=SCRIPTDIR
set -Eeuo pipefail
shopt -s inherit_errexit
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=lib.sh
. "${here}/lib.sh"
# shellcheck source=ports.sh
. "${here}/ports.sh"
# shellcheck source=conf.sh
. "${here}/conf.sh"
# shellcheck source=namespaces.sh
. "${here}/namespaces.sh"
# shellcheck source=accounting.sh
. "${here}/accounting.sh"

mode=auto count=4 acct=0 temp=0 port=0

parse_args() {
    while (($#)); do
        case $1 in
        --plain | --hosts | --netns) mode=${1#--} ;;
        --acct) acct=1 ;;
        -h | --help)
            sed -n '2,/^set -/{/^set -/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
            exit 0
            ;;
        [1-9] | [1-8][0-9] | 90) count=$1 ;;
        *) die "unknown argument '$1' (see --help)" ;;
        esac
        shift
    done
}

read_settings() {
    local i node
    cpus=${SLURM_LOCAL_CPUS:-16}
    mem=${SLURM_LOCAL_MEM:-64000}
    gpus=${SLURM_LOCAL_GPUS:-8}
    timeout=${SLURM_LOCAL_TIMEOUT:-30}
    host=$(uname -n)
    host=${host%%.*}
    node_list=()
    for ((i = 1; i <= count; i++)); do
        printf -v node 'node%02d' "${i}"
        node_list+=("${node}")
    done
}

need() {
    local hint=$1 tool
    shift
    for tool in "$@"; do
        command -v "${tool}" >/dev/null || die "${tool} is missing: apt-get install ${hint}"
    done
}

check_tools() {
    need "slurm-wlm munge libslurm-dev" slurmctld slurmd munged
    if ((acct)); then need "slurmdbd mariadb-server" slurmdbd mariadbd mariadb-install-db; fi
    case ${mode} in
    auto) if can_unshare; then mode=hosts; else mode=plain; fi ;;
    hosts | netns) can_unshare || die "--${mode} needs the right to make namespaces (CAP_SYS_ADMIN)" ;;
    esac
    if [[ ${mode} == netns ]]; then
        need iproute2 ip
        unshare --net true || die "--netns needs the right to make network namespaces"
    fi
}

# Finds or makes the state folder, and refuses to clear one that is not ours.
choose_dir() {
    local file
    if [[ -n ${SLURM_LOCAL_DIR:-} ]]; then
        dir=${SLURM_LOCAL_DIR}
        mkdir -p "${dir}"
        [[ -f ${dir}/local.conf || -z $(ls -A "${dir}") ]] ||
            die "${dir} is neither empty nor a state folder of start.sh"
    else
        dir=$(mktemp -d "${TMPDIR:-/tmp}/slurm-local.XXXXXX")
        temp=1
    fi
    dir=$(cd "${dir}" && pwd -P)
    [[ ${dir} != *[[:space:]]* ]] || die "Slurm allows no blanks in ${dir}"
    for file in "${dir}"/pids/*; do
        if [[ -f ${file} ]] && pid_of "${file##*/}" >/dev/null; then
            die "a Slurm is already running in ${dir}: stop it first"
        fi
    done
}

# Jobs of ordinary users write into containers/ and the plugin's log too.
make_dirs() {
    rm -rf "${dir:?}"/{pids,log,run,state,spool,munge,mysql,dev,bin,containers,private}
    mkdir -p "${dir}"/{pids,log,run,state,spool,munge,dev,bin,containers/mnt}
    chmod 755 "${dir}"
    chmod 700 "${dir}/munge"
    chmod 1777 "${dir}/containers"
    : >"${dir}/log/fakepyxis.jsonl"
    chmod 666 "${dir}/log/fakepyxis.jsonl"
}

remember() {
    net=${SLURM_LOCAL_NET:-127.77.$((port / 100 % 256))}
    ctld_addr=127.0.0.1
    if [[ ${mode} == netns ]]; then ctld_addr=${net}.1; fi
    cat >"${dir}/local.conf" <<END
mode=${mode} temp=${temp} port=${port} net=${net}
nodes='${node_list[*]}'
private='${SLURM_LOCAL_PRIVATE:-}'
END
}

# Ends whatever was started, if not all of it was.
cleanup() {
    local status=$?
    trap - EXIT
    if ((status)); then
        log "start failed; last lines of the logs in ${dir}/log:"
        tail -n 5 "${dir}"/log/*.out >&2 || true
        SLURM_LOCAL_KEEP=1 "${here}/stop.sh" "${dir}" || true
    fi
    exit "${status}"
}

start_munge() {
    (umask 077 && head -c 128 /dev/urandom >"${dir}/munge/munge.key")
    spawn munged munged --foreground --force --socket="${dir}/run/munge.sock" \
        --key-file="${dir}/munge/munge.key" --seed-file="${dir}/munge/munge.seed" \
        --log-file="${dir}/log/munged.log" --pid-file="${dir}/run/munged.pid"
    wait_for 5 test -S "${dir}/run/munge.sock" || die "munged did not start"
}

start_slurm() {
    local node
    local -a enter
    enter_cmd hub
    spawn slurmctld ${enter[@]+"${enter[@]}"} slurmctld -D -i
    for node in "${node_list[@]}"; do
        mkdir "${dir}/spool/${node}"
        start_slurmd "${node}"
    done
}

all_idle() {
    local name idle
    local -a enter
    for name in munged slurmctld "${node_list[@]/#/slurmd-}"; do
        if gone "${name}"; then die "${name} ended: $(tail -n 3 "${dir}/log/${name}.out")"; fi
    done
    enter_cmd hub
    idle=$(${enter[@]+"${enter[@]}"} sinfo -h -N -o %T 2>/dev/null | grep -c '^idle$') || true
    ((idle == count))
}

write_env() {
    {
        printf 'export SLURM_LOCAL_DIR=%s\n' "${dir}"
        printf 'export SLURM_CONF=%s/slurm.conf\n' "${dir}"
        # shellcheck disable=SC2016  # expanded by whoever evaluates the line
        if [[ ${mode} == netns ]]; then printf 'export PATH=%s/bin:$PATH\n' "${dir}"; fi
    } >"${dir}/env.sh"
}

main() {
    parse_args "$@"
    read_settings
    check_tools
    choose_dir
    make_dirs
    take_block
    remember
    trap cleanup EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    write_gres
    write_hosts
    write_cgroup_conf
    write_slurm_conf
    build_fakepyxis
    start_hub
    unlock_block # the hub alone holds it from here on
    start_nodes
    export SLURM_CONF=${dir}/slurm.conf
    start_munge
    if ((acct)); then start_accounting; fi
    start_slurm
    if [[ ${mode} == netns ]]; then write_wrappers; fi
    wait_for "${timeout}" all_idle || die "not all nodes are idle after ${timeout} s, see ${dir}/log/slurmctld.log"
    write_env
    log "${count} nodes idle in ${SECONDS} s (mode ${mode}, ports ${port}.., nodes ${net}.11.., state ${dir})"
    trap - EXIT
    cat "${dir}/env.sh"
}

main "$@"
