# Slurm runs a copy of this script from its spool folder: the bundle is found, then its library takes over.
refuse() {
  printf 'run.sbatch: %s\n' "$1" >&2
  exit 10
}

# True in an allocation that has no batch script (salloc): this file was then started by its own path.
# shellcheck disable=SC2329  # the library asks
in_allocation() {
  [[ "${job_text}" == *' BatchFlag=0 '* ]]
}

