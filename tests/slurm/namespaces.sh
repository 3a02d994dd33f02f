# shellcheck shell=bash disable=SC2154  # start.sh sets dir, mode, net, ...
# Gives each node its own host name, files and (netns) network. Sourced by start.sh, whose settings it reads.

# The set-up of one node, run inside its new namespaces: STATE NODE PRIVATE-FOLDERS
# shellcheck disable=SC2016  # expanded by the bash that runs it
node_init='
set -e
hostname "$2"
mount --bind "$1/hosts" /etc/hosts
[ ! -f "$1/resolv.conf" ] || [ ! -f /etc/resolv.conf ] || mount --bind "$1/resolv.conf" /etc/resolv.conf
for path in $3; do
    mkdir -p "$1/private/$2$path" "$path"
    chmod --reference="$path" "$1/private/$2$path"
    mount --bind "$1/private/$2$path" "$path"
done
: >"$1/run/ns-$2"
exec sleep infinity'

# Gives a network namespace its addresses: DEVICE ADDRESS. A 127.x address may live on a device only once the rest
# of 127/8 is off the loopback device.
# shellcheck disable=SC2016  # expanded by the sh that runs it
net_init='
if [ -z "${2##127.*}" ]; then
    echo 1 >/proc/sys/net/ipv4/conf/all/route_localnet
fi
ip link set lo up
if [ -z "${2##127.*}" ]; then
    ip addr add 127.0.0.1/32 dev lo
    ip addr del 127.0.0.1/8 dev lo
fi
ip addr add "$2/24" dev "$1"
ip link set "$1" up'

can_unshare() { unshare --uts --mount true 2>/dev/null; }

has_own_net() {
    local pid=$1
    [[ $(readlink "/proc/${pid}/ns/net") != $(readlink /proc/self/ns/net) ]]
}

net_setup() {
    local pid=$1 device=$2 addr=$3
    nsenter "--target=${pid}" --net -- sh -ec "${net_init}" sh "${device}" "${addr}"
}

# The process "hub" holds the lock on the ports and, in netns mode, the controller's network: a bridge that
# all nodes are plugged into.
start_hub() {
    local pid
    if [[ ${mode} != netns ]]; then
        spawn ns-hub sleep infinity
        return
    fi
    spawn ns-hub unshare --net sleep infinity
    pid=$(pid_of ns-hub)
    wait_for 5 has_own_net "${pid}" || die "the hub has no network of its own"
    nsenter "--target=${pid}" --net -- ip link add br0 type bridge
    net_setup "${pid}" br0 "${net}.1"
}

plug_in() {
    local node=$1 pid
    local -a enter
    pid=$(pid_of "ns-${node}")
    enter_cmd hub
    "${enter[@]}" ip link add "${node}" type veth peer name eth0 netns "${pid}"
    "${enter[@]}" ip link set "${node}" master br0 up
    net_setup "${pid}" eth0 "$(address "${node}")"
}

check_private() {
    local path
    for path in ${SLURM_LOCAL_PRIVATE:-}; do
        [[ ${path} == /* ]] || die "SLURM_LOCAL_PRIVATE: ${path} is not absolute"
        [[ ${dir}/ != "${path%/}"/* ]] || die "SLURM_LOCAL_PRIVATE: ${path} holds the state folder"
    done
}

start_nodes() {
    local node
    local -a share=(--uts --mount)
    [[ ${mode} != plain ]] || return 0
    check_private
    if [[ ${mode} == netns ]]; then share+=(--net); fi
    for node in "${node_list[@]}"; do
        spawn "ns-${node}" unshare "${share[@]}" bash -c "${node_init}" node-init \
            "${dir}" "${node}" "${SLURM_LOCAL_PRIVATE:-}"
    done
    for node in "${node_list[@]}"; do
        wait_for 5 test -e "${dir}/run/ns-${node}" ||
            die "cannot set up ${node}: $(tail -n 3 "${dir}/log/ns-${node}.out")"
        if [[ ${mode} == netns ]]; then plug_in "${node}"; fi
    done
}

# Commands for the outside of a network namespace: they step into the hub's. Inside (in jobs) they fall through.
write_wrappers() {
    local cmd real outside pid
    pid=$(pid_of ns-hub)
    outside=$(readlink /proc/self/ns/net)
    for cmd in sbatch srun salloc scancel squeue sinfo scontrol sattach sbcast sstat sacct sacctmgr strigger sprio; do
        real=$(command -v "${cmd}") || continue
        cat >"${dir}/bin/${cmd}" <<END
#!/bin/sh
if [ "\$(readlink /proc/self/ns/net)" = '${outside}' ]; then
    exec nsenter --target=${pid} --net -- ${real} "\$@"
fi
exec ${real} "\$@"
END
        chmod 755 "${dir}/bin/${cmd}"
    done
}
