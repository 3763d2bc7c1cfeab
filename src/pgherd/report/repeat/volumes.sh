# ---- Files that lie apart from the rest

# wal SERVER DIRECTORY: move its write-ahead log to a directory of its own there.
wal() {
    place=$(mktemp -d -- "${WAL_DIR:-$2}/repeat-wal-XXXXXX") ||
        die "the WAL of this trial was in $2; name a directory for it with WAL_DIR"
    elsewhere=yes
    printf '%s\n' "$place" >>"$work/elsewhere"
    own "$place"
    as test -d "$place/." || die "account $ACCOUNT cannot enter $place; choose another place with WAL_DIR"
    mv -T -- "$work/$1/data/pg_wal" "$place/pg_wal"
    ln -s -- "$place/pg_wal" "$work/$1/data/pg_wal"
}

# each_elsewhere COMMAND...: run it on each of these directories.
each_elsewhere() { while IFS= read -r place; do "$@" "$place"; done <"$work/elsewhere"; }

