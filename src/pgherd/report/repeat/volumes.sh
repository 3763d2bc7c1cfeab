# ---- Files on other volumes

# apart DIRECTORY: create a private directory below it and set $there to it.
apart() {
    there=$(mktemp -d -- "$1/repeat-XXXXXX") || die "parts of this trial's servers were in $1; name another directory in the environment"
    elsewhere=yes
    printf '%s\n' "$there" >>"$work/elsewhere"
    own "$there"
    as test -d "$there/." || die "user $ACCOUNT cannot enter $there; name another directory in the environment"
}

# data SERVER DIRECTORY: place its data there, before they are copied.
data() {
    mkdir -m 700 "$work/$1"
    own "$work/$1"
    apart "$2"
    mkdir "$there/data"
    ln -s -- "$there/data" "$work/$1/data"
}

# wal SERVER DIRECTORY: move its WAL to a private directory there.
wal() {
    apart "$2"
    mv -T -- "$work/$1/data/pg_wal" "$there/pg_wal"
    ln -s -- "$there/pg_wal" "$work/$1/data/pg_wal"
}

# For servers on which transactions are read-only by default.
writable='SET default_transaction_read_only = off;'

# space SERVER NAME DIRECTORY: create a tablespace there.
space() {
    apart "$3"
    echo "$writable CREATE TABLESPACE $2 LOCATION :'there'" | quietly client "$1" psql -qX -v ON_ERROR_STOP=1 -v there="$there" -d postgres
}

# temporary SERVER TABLESPACE: use it for temporary files.
temporary() {
    quietly client "$1" psql -qX -v ON_ERROR_STOP=1 -d postgres -c "ALTER SYSTEM SET temp_tablespaces = '$2'" -c 'SELECT pg_reload_conf()'
}

# spread SERVER DATABASE TABLESPACE...: move tables and indexes to these, largest first, each to the emptiest.
spread() {
    server=$1 database=$2
    shift 2
    form="CASE kind WHEN 'r' THEN 'TABLE' WHEN 'i' THEN 'INDEX' ELSE 'MATERIALIZED VIEW' END"
    query="SELECT size, format('ALTER %s %I.%I SET TABLESPACE', $form, schema, name) FROM ($relations) AS found (schema, name, kind, size)
        ORDER BY size DESC, schema, name"
    client "$server" psql -qXAt -F ' ' -v ON_ERROR_STOP=1 -d "$database" -c "$query" >"$work/relations" || die "failed: $query"
    awk -v names="$*" -v first="$writable" 'BEGIN { print first } {
        count = split(names, name, " ")
        at = 1
        for (i = 2; i <= count; i++) if (filled[i] < filled[at]) at = i
        filled[at] += $1 > 1 ? $1 : 1
        print substr($0, length($1) + 2), name[at] ";"
    }' "$work/relations" | quietly client "$server" psql -qX -v ON_ERROR_STOP=1 -d "$database"
    quietly client "$server" psql -qX -d postgres -c CHECKPOINT
}

# each_elsewhere COMMAND...: run the command on each of these directories.
each_elsewhere() { while IFS= read -r there; do "$@" "$there"; done <"$work/elsewhere"; }

