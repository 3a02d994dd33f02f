# shellcheck shell=bash disable=SC2154  # start.sh sets dir, net, count, ...
# Writes the configuration files of one local Slurm. Sourced by start.sh, whose settings it reads.

address() {
    local node=$1
    printf '%s.%s\n' "${net}" "$((10 + 10#${node#node}))"
}

# Each fake GPU is a device file, so that Slurm sets CUDA_VISIBLE_DEVICES.
write_gres() {
    local i
    gres=
    : >"${dir}/gres.conf"
    ((gpus > 0)) || return 0
    gres=" Gres=gpu:${gpus}"
    for ((i = 0; i < gpus; i++)); do ln -s /dev/null "${dir}/dev/nvidia${i}"; done
    printf 'AutoDetect=off\nName=gpu Flags=nvidia_gpu_env File=%s/dev/nvidia[0-%d]\n' \
        "${dir}" "$((gpus - 1))" >"${dir}/gres.conf"
}

write_hosts() {
    local node
    {
        printf '127.0.0.1 localhost\n'
        printf '%s %s\n' "${ctld_addr}" "${host}"
        for node in "${node_list[@]}"; do printf '%s %s\n' "$(address "${node}")" "${node}"; done
    } >"${dir}/hosts"
    # Without a way out a name that is not in there is unknown at once: no DNS on the nodes.
    [[ ${mode} == netns ]] || return 0
    printf 'nameserver 127.0.0.1\noptions timeout:1 attempts:1\n' >"${dir}/resolv.conf"
}

slurm_version() { slurmctld -V | sed -n 's/^slurm[^0-9]*\([0-9]*\)\.\([0-9]*\).*/\1\2/p'; }

# Plugins that are a version's own default (task, switch, mpi, accounting: none) are not named: newer Slurms have
# dropped the files of some. Newer slurmds also ask for cgroups unless told not to; 22.05 does not know the word.
write_cgroup_conf() {
    local version
    version=$(slurm_version)
    if ((${version:-0} >= 2302)); then printf 'CgroupPlugin=disabled\n' >"${dir}/cgroup.conf"; fi
}

node_lines() {
    local i node_port node_host
    for ((i = 0; i < count; i++)); do
        node_port=$((port + 1 + i)) node_host=
        # One port for all where each node has a network of its own.
        if [[ ${mode} == netns ]]; then node_port=$((port + 1)); fi
        if [[ ${mode} == plain ]]; then node_host=" NodeHostname=${host}"; fi
        printf 'NodeName=%s%s NodeAddr=%s Port=%s CPUs=%s RealMemory=%s%s\n' "${node_list[i]}" "${node_host}" \
            "$(address "${node_list[i]}")" "${node_port}" "${cpus}" "${mem}" "${gres}"
    done
}

# Job ids differ between clusters, side by side and one after the other: jobs name folders in the /tmp that all
# share by their id. Slurm's ids end at 67043328.
first_job_id() { printf '%s\n' "$((RANDOM % 500 * 130000 + (port - 17000) * 10 + 1))"; }

write_slurm_conf() {
    local user
    user=$(id -un)
    {
        cat <<END
ClusterName=local
SlurmctldHost=${host}(${ctld_addr})
SlurmctldPort=${port}
SlurmUser=${user}
SlurmdUser=${user}
AuthType=auth/munge
AuthInfo=socket=${dir}/run/munge.sock
StateSaveLocation=${dir}/state
SlurmdSpoolDir=${dir}/spool/%n
SlurmctldPidFile=${dir}/run/slurmctld.pid
SlurmdPidFile=${dir}/run/slurmd-%n.pid
SlurmctldLogFile=${dir}/log/slurmctld.log
SlurmdLogFile=${dir}/log/slurmd-%n.log
PlugStackConfig=${dir}/plugstack.conf
ProctrackType=proctrack/linuxproc
PropagateResourceLimits=NONE
MailProg=/bin/true
JobCompType=jobcomp/filetxt
JobCompLoc=${dir}/log/jobcomp.log
FirstJobId=$(first_job_id)
# Nodes claim more CPUs and memory than this machine has.
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=${SLURM_LOCAL_SELECT:-CR_Core_Memory}
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=2
GresTypes=gpu
# Fast reactions.
MessageTimeout=5
TCPTimeout=2
SlurmdTimeout=${SLURM_LOCAL_DOWN:-10}
KillWait=${SLURM_LOCAL_KILLWAIT:-5}
BatchStartTimeout=10
ReturnToService=2
END
        node_lines
        printf 'PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n'
        if ((acct)); then
            printf 'AccountingStorageType=accounting_storage/slurmdbd\n'
            printf 'AccountingStorageHost=127.0.0.1\nAccountingStoragePort=%s\n' "$((port + 98))"
            # With munge, the "password" is where its socket is.
            printf 'AccountingStoragePass=%s/run/munge.sock\n' "${dir}"
        fi
        printf '%s\n' "${SLURM_LOCAL_CONF:-}"
    } >"${dir}/slurm.conf"
}

# Builds the SPANK plugin for the very Slurm that is installed.
build_fakepyxis() {
    : >"${dir}/plugstack.conf"
    if gcc -shared -fPIC -O1 -Wall -Wextra -o "${dir}/fakepyxis.so" "${here}/fakepyxis.c" \
        2>"${dir}/log/fakepyxis-build.out"; then
        printf 'required %s/fakepyxis.so dir=%s\n' "${dir}" "${dir}" >"${dir}/plugstack.conf"
    else
        log "warning: no fakepyxis (it needs gcc and libslurm-dev), see ${dir}/log/fakepyxis-build.out"
    fi
}
