# shellcheck shell=bash disable=SC2154  # start.sh sets dir, port and host
# Optional accounting (slurmdbd on a MariaDB of its own), for sacct. Sourced by start.sh.
# slurmctld insists on its accounting daemon, and that one on its database.

add_cluster() {
    ${enter[@]+"${enter[@]}"} sacctmgr -i add cluster local >>"${dir}/log/sacctmgr.out" 2>&1
}

start_accounting() {
    local user
    local -a enter sql=("--no-defaults" "--user=root" "--socket=${dir}/run/mysql.sock")
    user=$(id -un)
    enter_cmd hub
    mariadb-install-db --no-defaults --datadir="${dir}/mysql" --user="${user}" \
        --auth-root-authentication-method=normal --skip-test-db >"${dir}/log/mysql-install.out" 2>&1
    spawn mariadbd ${enter[@]+"${enter[@]}"} mariadbd --no-defaults --user="${user}" \
        --datadir="${dir}/mysql" --socket="${dir}/run/mysql.sock" --pid-file="${dir}/run/mysql.pid" \
        --bind-address=127.0.0.1 --port="$((port + 99))" --innodb-flush-log-at-trx-commit=0
    wait_for 10 mariadb-admin "${sql[@]}" --silent ping >/dev/null 2>&1 || die "mariadbd did not start"
    mariadb "${sql[@]}" -e "CREATE USER slurm@'127.0.0.1' IDENTIFIED BY 'slurm';
        CREATE USER slurm@localhost IDENTIFIED BY 'slurm';
        GRANT ALL ON slurm_acct_db.* TO slurm@'127.0.0.1', slurm@localhost"
    (umask 077 && cat >"${dir}/slurmdbd.conf") <<END
AuthType=auth/munge
AuthInfo=socket=${dir}/run/munge.sock
DbdHost=${host}
DbdAddr=127.0.0.1
DbdPort=$((port + 98))
SlurmUser=${user}
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort=$((port + 99))
StorageUser=slurm
StoragePass=slurm
LogFile=${dir}/log/slurmdbd.log
PidFile=${dir}/run/slurmdbd.pid
END
    spawn slurmdbd ${enter[@]+"${enter[@]}"} slurmdbd -D
    wait_for 10 add_cluster || die "no accounting: $(tail -n 3 "${dir}/log/sacctmgr.out")"
}
