# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154  # the state of the job is shared by the libraries; srtgen.sh is checked as a whole
# The first steps of a job: a clean environment, a folder for the results, the profile's preamble.

preamble_runs=0 # 1 while the profile's text has the shell: its exit is no end of the job's story

# What the submit shell may bring along and steps must not see.
clean_environment() {
  unset SLURM_EXPORT_ENV # else every srun loses its environment, PATH included
  unset SLURM_CPU_BIND "${!SLURM_CPU_BIND_@}" "${!SLURM_MEM_BIND@}" SLURM_DISTRIBUTION SLURM_HINT
  unset "${!SLURM_SPANK__SLURM_SPANK_OPTION_pyxis_@}"
  unset ROCR_VISIBLE_DEVICES HIP_VISIBLE_DEVICES CUDA_VISIBLE_DEVICES GPU_DEVICE_ORDINAL USE_ATOMESH_ENTRYPOINTS
  [[ -z "${SLURM_CPUS_PER_TASK:-}" ]] || read_cpus_per_task
}

# The variable may be another job's, when this one was submitted from inside it: the job's own number, or none.
read_cpus_per_task() {
  local line
  unset SLURM_CPUS_PER_TASK SLURM_TRES_PER_TASK
  while IFS= read -r line; do
    [[ ! "${line}" =~ CPUs/Task=([0-9]+) ]] || ((BASH_REMATCH[1] < 2)) || export SLURM_CPUS_PER_TASK="${BASH_REMATCH[1]}"
  done < <(scontrol show job "${SLURM_JOB_ID}" 2>/dev/null)
}

# SBATCH_* beat the directives in run.sbatch; too late to stop, not too late to say.
warn_about_overrides() {
  local name
  for name in "${!SBATCH_@}"; do
    warn "${name}=${!name} was set at submission and overrides run.sbatch's directives"
    unset "${name}"
  done
}

# Makes the folder of this attempt; results of an earlier one are never touched.
open_results() {
  local root="${SRTGEN_RESULTS_DIR:-${PLAN_OUTPUT_DIR:-${BUNDLE}/results}}" restart="${SLURM_RESTART_COUNT:-0}"
  [[ "${root}" == /* ]] || root="${SLURM_SUBMIT_DIR:-${BUNDLE}}/${root}"
  mkdir -p -- "${root}" || refuse "cannot make the results folder ${root}"
  job_folder="${root}/${SLURM_JOB_ID}"
  ((restart == 0)) || job_folder+=".r${restart}"
  attempt=$((restart + 1))
  until mkdir -- "${job_folder}" 2>/dev/null; do
    [[ -d "${job_folder}" ]] || refuse "cannot make ${job_folder}"
    job_folder="${root}/${SLURM_JOB_ID}.r${attempt}"
    attempt=$((attempt + 1))
  done
  mkdir -- "${job_folder}/logs" "${job_folder}/bench" "${job_folder}/eval"
  cp -- "${BUNDLE}/manifest.json" "${job_folder}/manifest.json"
  log_file="${job_folder}/job.log"
  result_file="${job_folder}/result.json"
  write_result
}

# The profile's shell text, in this shell, so that modules and exports reach every step.
run_preamble() {
  local code=0
  [[ -n "${PLAN_PREAMBLE}" ]] || return 0
  printf '%s\n' "${PLAN_PREAMBLE}" >"${run_folder}/preamble"
  trap - ERR
  set +eu
  preamble_runs=1
  # shellcheck source=/dev/null  # text of the cluster profile
  source "${run_folder}/preamble" || code=$?
  preamble_runs=0
  set -eu
  trap 'note_error "${LINENO}" "${BASH_SOURCE[0]}" "${BASH_COMMAND}"' ERR
  ((code == 0)) || fail 10 "the profile's preamble ended with exit code ${code}"
}
