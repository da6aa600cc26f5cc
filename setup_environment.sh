#!/bin/sh
# Brings the virtual environment in the folder $1 to what requirements.lock says, and does nothing
# where it is so already. $PYTHON, if set, names the interpreter to make it from.
# In shell, not in Python, since it has to speak up where there is no Python or only an old one.
set -eu

venv=${1:?usage: sh setup_environment.sh FOLDER}
state_file=$venv/installed-lock # "<SHA-256 of the lock> <Python>", or "incomplete <process>"

fail() { # joins its arguments
    printf 'error: %s\n' "$*" >&2
    exit 1
}

# Prints "<SHA-256 of the lock> <Python version>"; nothing where $1 is no Python that runs (a
# version manager's shim may exist and still fail). No shell command that hashes is everywhere.
identity() {
    "$1" -c 'if True:
        import hashlib, sys
        with open("requirements.lock", "rb") as lock:
            print("%s %d.%d" % ((hashlib.sha256(lock.read()).hexdigest(),) + sys.version_info[:2]))
    ' </dev/null 2>/dev/null || true
}

fits() {
    case $1 in *" 3.11" | *" 3.12" | *" 3.13" | *" 3.14") return 0 ;; *) return 1 ;; esac
}

# Sets python and wanted (its identity) to the first interpreter that can make the environment.
find_python() {
    if [ -n "${PYTHON:-}" ]; then
        set -- "$PYTHON"
    else
        set -- python3 python3.13 python3.12 python3.11 python3.14 python
    fi
    # the interpreter behind it, since python3 is the one in $venv where that is activated
    base_of_python='import ensurepip, sys, venv; print(sys._base_executable)'
    unfit=
    without_venv=
    for python; do
        wanted=$(identity "$python")
        if [ -z "$wanted" ]; then
            continue
        elif ! fits "$wanted"; then
            unfit="$unfit${unfit:+, }$python is ${wanted##* }"
        elif base=$("$python" -c "$base_of_python" </dev/null 2>/dev/null); then
            python=$base
            return 0
        else
            without_venv=${without_venv:-$python}
        fi
    done
    [ -z "$without_venv" ] || fail "$without_venv has no venv module; install it" \
        "(Debian, Ubuntu: apt install python3-venv) or name another one:" \
        "make train PYTHON=/path/to/python3.13"
    fail "Python 3.11 to 3.14 is needed, but ${unfit:-"${PYTHON:-python3}" does not run here};" \
        "install one or name it: make train PYTHON=/path/to/python3.13"
}

# Makes an empty environment in $venv; what is in the way must have been an environment too.
make_environment() {
    mkdir -p "$venv" || fail "cannot make the folder $venv"
    if [ ! -e "$venv/pyvenv.cfg" ] && [ ! -e "$state_file" ] && [ -n "$(ls -A "$venv")" ]; then
        fail "$venv is not a virtual environment; move it away or choose another: VENV=folder"
    fi
    find "$venv/" -mindepth 1 -delete # it may be a link to another disk
    echo "incomplete $$" >"$state_file"
    free_gb=$(df -Pk "$venv" | awk 'NR == 2 { print int($4 / 1048576) }')
    [ "${free_gb:-$needed_gb}" -ge "$needed_gb" ] ||
        fail "installing into $venv needs $needed_gb GB of disk, but $free_gb GB are free;" \
            "make room or choose another disk: VENV=/other/disk/venv"
    "$python" -m venv "$venv" >"$venv/install.log" 2>&1 </dev/null || fail_with_log
}

# pip's temporary files go beside the environment: /tmp may be a small memory disk.
install_lock() {
    TMPDIR=$(cd "$venv" && pwd)/tmp
    export TMPDIR
    mkdir -p "$TMPDIR"
    "$venv/bin/python" -I -m pip install --quiet --no-input --disable-pip-version-check \
        --require-hashes -r requirements.lock >"$venv/install.log" 2>&1 </dev/null
}

fail_with_log() {
    cat "$venv/install.log" >&2
    fail "the environment $venv could not be installed; the lines above say why"
}

[ -f requirements.lock ] || fail "there is no requirements.lock in $PWD; start in the project"
state=$(cat "$state_file" 2>/dev/null || true)
python=$venv/bin/python
current=$(identity "$python")
wanted=$current
[ -z "${PYTHON:-}" ] || wanted=$(identity "$PYTHON")
if [ -n "$current" ] && [ "$current" = "$wanted" ] && [ "$current" = "$state" ]; then
    exit 0
fi

case $state in "incomplete "*)
    process=${state#* }
    found=$(ps -p "$process" -o args= 2>/dev/null | grep setup_environment || true)
    if [ -n "$found" ] && [ "$process" != $$ ]; then
        fail "process $process is installing into $venv; wait until it is done"
    fi
    current= # it was killed: half a package may lie there
    ;;
esac

# CUDA libraries make it this large on Linux; the downloads lie beside it while it is installed.
if [ "$(uname -s)" = Linux ]; then size_gb=7 needed_gb=11; else size_gb=2 needed_gb=4; fi
if [ "$current" = "$wanted" ] && fits "$current" && "$python" -c 'import pip' 2>/dev/null; then
    echo "updating $venv to the changed lock"
    before=${state:-made by hand}
else
    find_python
    echo "installing the locked environment into $venv (about $size_gb GB, a few minutes)"
    before=
    make_environment
fi
case $wanted in *" 3.14") echo "Python 3.14 has no TorchScript; everything else runs" ;; esac

echo "incomplete $$" >"$state_file"
if ! install_lock; then
    [ -z "$before" ] || echo "$before" >"$state_file" # pip has undone its changes
    fail_with_log
fi
rm -rf "$TMPDIR"
echo "$wanted" >"$state_file.new"
mv "$state_file.new" "$state_file"
