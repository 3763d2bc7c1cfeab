# Makes and updates the Python environment of this checkout. Sourced by ./pgherd and ./check, which set $root.
#
# It lies in $root/.venv; where that cannot be written, or is somebody else's, in the user's cache directory. Inside are
# copies of the lock files it was made from: an environment without an equal copy is not used. They are written last,
# so a set-up that was interrupted is started afresh. pgherd itself is not copied in: a .pth file points at src.

say() {
    printf 'pgherd: %s\n' "$*" >&2
}

give_up() { # MESSAGE: this host cannot run pgherd as it is
    say "$1"
    exit 3
}

# prepare_environment [dev]: sets $env to an environment that is ready, making it if need be; exits 3 if it cannot.
prepare_environment() {
    choose_environment "$@"
    environment_ready "$@" && return
    [ -r "$root/environment/requirements.lock" ] || give_up "$root/environment/requirements.lock is missing: the checkout is not whole"
    parent=${env%/*}
    mkdir -p -- "$parent" 2>/dev/null && [ -w "$parent" ] ||
        give_up "cannot write an environment to $parent: set XDG_CACHE_HOME to a directory that you can write"
    trap 'say "interrupted; the next use starts afresh"; exit 130' INT TERM HUP
    lock_environment
    if ! environment_ready "$@"; then # else another pgherd made it while this one waited
        environment_ready || make_environment
        [ -z "$1" ] || install_packages "requirements-$1.lock"
        environment_ready "$@" || give_up "$env was made but cannot be used: $log tells more"
    fi
    unlock_environment
    trap - INT TERM HUP
}

environment_ready() { # [dev]
    [ -x "$env/bin/python" ] || return 1
    cmp -s "$root/environment/requirements.lock" "$env/requirements.lock" || return 1
    [ -z "$1" ] || cmp -s "$root/environment/requirements-$1.lock" "$env/requirements-$1.lock"
}

choose_environment() { # [dev]
    env=$root/.venv
    environment_ready "$@" && return
    if [ -e "$env" ]; then
        # One of another user is used if it is ready, never changed; one that pgherd did not make is left alone.
        [ -O "$env" ] && [ -w "$env" ] && [ -e "$env/made-by-pgherd" ] && return
    elif [ -w "$root" ]; then
        return
    fi
    hash=$(printf %s "$root" | cksum)
    env=${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/pgherd/venv-${hash%% *}
}

# One set-up at a time. Only this user can open the directory that is locked, so no other can hold the lock. The kernel drops
# it when the last process of the set-up ends, however it ends; a directory that is left is used by the next set-up.
lock_environment() {
    locked=$env.lock
    if command -v flock >/dev/null 2>&1; then
        while mkdir -m 700 -- "$locked" 2>/dev/null || [ -O "$locked" ]; do
            command exec 9<"$locked" || continue
            flock -n 9
            case $? in
            0) ;;
            1) say "another pgherd is making the environment; waiting for it" && flock 9 ;;
            *) rmdir -- "$locked" && break ;; # this file system has no such locks (NFS)
            esac
            if [ "$locked" -ef /dev/fd/9 ]; then # the one before removes it at its end
                trap 'rmdir -- "$locked"' EXIT
                return
            fi
        done
        exec 9<&-
    fi
    locked=$env.making
    waited=0
    until mkdir -- "$locked" 2>/dev/null; do
        [ "$waited" -lt 300 ] || give_up "$locked says that another pgherd is making the environment; if none is, remove it"
        [ "$waited" -gt 0 ] || say "another pgherd is making the environment; waiting for it"
        sleep 1
        waited=$((waited + 1))
    done
    trap 'rmdir -- "$locked"' EXIT
}

unlock_environment() {
    trap - EXIT
    rmdir -- "$locked"
    exec 9<&-
}

make_environment() {
    find_python
    say "first use: making the environment in $env, about half a minute"
    rm -rf -- "$env" && mkdir -p -- "$env" && : >"$env/made-by-pgherd" || give_up "cannot write $env"
    if [ -n "$python" ]; then
        logged "$python" -I -m venv "$env"
    else
        logged uv venv --quiet --allow-existing --python '>=3.11,<3.15' "$env"
    fi
    for packages in "$env"/lib/python3*/site-packages; do
        if [ "$env" = "$root/.venv" ]; then
            echo ../../../../src # relative: a checkout may be moved or copied together with its environment
        else
            printf '%s\n' "$root/src"
        fi >"$packages/pgherd.pth"
    done
    printf '%s\n' '"""Starts the command line of the checkout that this environment belongs to."""' '' \
        'from pgherd.cli.main import main' '' 'main()' >"$env/bin/pgherd"
    install_packages requirements.lock
}

install_packages() { # LOCK: the exact packages in it, nothing else
    [ "$1" = requirements.lock ] || say "adding the packages of $1 to $env"
    if [ -x "$env/bin/pip" ]; then
        # A user's settings for pip at large (PIP_USER and the like) would lead out of the environment.
        logged env -u PIP_USER -u PIP_TARGET -u PIP_PREFIX -u PIP_ROOT -u PIP_REQUIREMENT -u PIP_CONSTRAINT \
            "$env/bin/python" -I -m pip install --quiet --no-input --disable-pip-version-check --no-deps --no-compile \
            --requirement "$root/environment/$1"
    else
        find_uv || give_up "$env was made with uv, which is gone: install uv, or remove $env"
        logged uv pip install --quiet --no-deps --python "$env/bin/python" --requirement "$root/environment/$1"
    fi
    # Without bytecode every start is slow; -I also sets aside a PYTHONDONTWRITEBYTECODE of this shell. A package may
    # hold files that are no valid Python (templates), and src may be read-only: neither matters.
    "$env/bin/python" -I -m compileall -qq -j 0 "$env/lib" "$root/src" >/dev/null 2>&1 || :
    cp -- "$root/environment/$1" "$env/$1.new" && mv -- "$env/$1.new" "$env/$1" || give_up "cannot write $env/$1"
}

logged() { # COMMAND ARG…: its output is shown only if it fails
    log=$env/set-up.log
    "$@" </dev/null >"$log" 2>&1 && return
    tail -n 30 -- "$log" >&2
    give_up "making the environment failed: the output of '$1' is above and in $log; correct the cause and try again"
}

# Sets $python to one that can make environments, or to nothing where uv is to do it; exits 3 if there is neither.
find_python() {
    bare=
    try_python "$PGHERD_PYTHON" && return
    [ -z "$PGHERD_PYTHON" ] || give_up "PGHERD_PYTHON=$PGHERD_PYTHON is no Python from 3.11 on with the modules venv and ensurepip"
    for candidate in python3.13 python3.12 python3.11 python3.14 python3; do
        try_python "$candidate" && return
    done
    python=
    find_uv && return
    [ -z "$bare" ] || give_up "Python $bare is here, but not its module for environments: apt install python3-venv (or python$bare-venv), or install uv"
    give_up "needs Python from 3.11 on with the module venv, or uv, and found neither: install one (Debian 12, Ubuntu 24.04: python3-venv; Fedora: python3; RHEL 9: python3.11; SUSE: python311), or uv. PGHERD_PYTHON names a Python elsewhere"
}

find_uv() {
    command -v uv >/dev/null 2>&1
}

try_python() { # CANDIDATE: sets $python to the real file of it, so that a later change of a link breaks nothing
    [ -n "$1" ] && command -v "$1" >/dev/null 2>&1 || return 1
    answer=$("$1" -I -c '
import os, sys
version = "%d.%d" % sys.version_info[:2]
if sys.version_info < (3, 11):
    sys.exit()
try:
    import ensurepip, venv
except ImportError:
    print("bare " + version)
else:
    print("good " + os.path.realpath(sys.executable))
' 2>/dev/null)
    case $answer in
    'good '*) python=${answer#good } ;;
    'bare '*) bare=${answer#bare } && return 1 ;;
    *) return 1 ;;
    esac
}
