# Unpacks SCRIPT's bundle, if it is the one of SHA256, into FOLDER.
readonly UNPACK='
import base64, hashlib, io, sys, tarfile
script, sha256, folder = sys.argv[1:]
try:
    with open(script, "rb") as stream:
        carried = stream.read().rpartition(b"\n# ---- The carried bundle")[2]
    data = base64.b64decode(carried.partition(b"\n")[2])
    if hashlib.sha256(data).hexdigest() != sha256:
        sys.exit("the bundle that run.sbatch carries is not the one that it was generated with: its sha256 differs")
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        archive.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
except (OSError, ValueError) as error:
    sys.exit(str(error))
'

# Sets BUNDLE to a private folder of this node with what the script carries; it goes with the job.
unpack_bundle() {
  local said
  [[ -r "${SINGLE_FILE}" ]] || refuse 'it cannot read itself: start it as a file'
  BUNDLE="$(mktemp -d "/tmp/srtgen-bundle-${SLURM_JOB_ID}.XXXXXX")" || refuse "no folder can be made in /tmp of $(uname -n)"
  readonly BUNDLE
  trap 'rm -rf -- "${BUNDLE}"' EXIT
  said="$(python3 -E -s -c "${UNPACK}" "${SINGLE_FILE}" "${BUNDLE_SHA256}" "${BUNDLE}" 2>&1)" || refuse "${said} (on $(uname -n))"
}

[[ -n "${SLURM_JOB_ID:-}" ]] || refuse 'this is a Slurm batch script: start it with sbatch run.sbatch'
job_text="$(scontrol show job "${SLURM_JOB_ID}" 2>/dev/null)" || job_text=''
readonly SINGLE_FILE="${BASH_SOURCE[0]:-}"
unpack_bundle
# shellcheck source-path=SCRIPTDIR source=lib/srtgen.sh
source "${BUNDLE}/lib/srtgen.sh"
main
exit
