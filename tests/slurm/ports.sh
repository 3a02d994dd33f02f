# shellcheck shell=bash disable=SC2034,SC2154  # start.sh sets mode, count and acct, and reads port
# Finds a block of 100 TCP ports. Sourced by start.sh, whose settings it reads.
# A block is ours while a process of ours (the hub) holds a lock on its file, so that clusters that start at the same
# time never choose the same one. Ports are the machine's: the locks are in /tmp whatever TMPDIR says.
lock_dir=/tmp/slurm-local-ports
lock_fd=

lock_block() {
    local first=$1
    exec {lock_fd}>>"${lock_dir}/${first}" || return 1
    chmod 666 "${lock_dir}/${first}" 2>/dev/null || true
    if flock -n "${lock_fd}"; then return 0; fi
    unlock_block
    return 1
}

unlock_block() {
    exec {lock_fd}>&-
    lock_fd=
}

# In netns mode every port is free: the network is new.
block_is_free() {
    local first=$1 p
    local -a wanted
    [[ ${mode} != netns ]] || return 0
    for ((p = first; p <= first + count; p++)); do wanted+=("${p}"); done
    if ((acct)); then wanted+=("$((first + 98))" "$((first + 99))"); fi
    for p in "${wanted[@]}"; do
        if (: <"/dev/tcp/127.0.0.1/${p}") 2>/dev/null; then return 1; fi
    done
}

take_block() {
    local p
    [[ -d ${lock_dir} ]] || mkdir -m 1777 "${lock_dir}" 2>/dev/null || [[ -d ${lock_dir} ]] ||
        die "cannot make ${lock_dir}"
    if [[ -n ${SLURM_LOCAL_PORT:-} ]]; then
        lock_block "${SLURM_LOCAL_PORT}" || die "port block ${SLURM_LOCAL_PORT} is taken by another cluster"
        block_is_free "${SLURM_LOCAL_PORT}" || die "a port of ${SLURM_LOCAL_PORT}.. is in use"
        port=${SLURM_LOCAL_PORT}
        return
    fi
    for ((p = 17000; p < 29900; p += 100)); do
        lock_block "${p}" || continue
        port=${p}
        if block_is_free "${p}"; then return; fi
        unlock_block
    done
    die "no free block of ports"
}
