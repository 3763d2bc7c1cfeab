# ---- Huge pages, of which there is one pool for the whole machine

# reserve SERVER KILOBYTES: add as many pages of this size as the server needs ("default": of the kernel's default size).
reserve() {
    size=$2
    [ "$size" != default ] || size=$(awk '/^Hugepagesize:/ { print $2 }' /proc/meminfo)
    file=/sys/kernel/mm/hugepages/hugepages-${size}kB/nr_hugepages
    need=$(as "$BIN/postgres" -C shared_memory_size_in_huge_pages -D "$work/$1/data") || die "server $1 does not say how many pages it needs"
    wanted=$(($(cat "$file") + need))
    printf '%s %s\n' "$need" "$file" >>"$work/pages"
    pages=yes
    echo "$wanted" >"$file" || die "$need huge pages of $size kB are needed: run this as root"
    [ "$(cat "$file")" -ge "$wanted" ] || die "the kernel does not have $need more huge pages of $size kB"
}

# transparent WORD: whether the kernel backs shared memory by transparent huge pages.
transparent() {
    file=/sys/kernel/mm/transparent_hugepage/shmem_enabled
    now=$(sed 's/.*\[\(.*\)\].*/\1/' "$file")
    [ "$now" != "$1" ] || return 0
    printf '%s %s\n' "$now" "$file" >>"$work/words"
    pages=yes
    echo "$1" >"$file" || die "'$1' must be written to $file: run this as root"
}

# give_back: everything as it was.
give_back() {
    if [ -e "$work/pages" ]; then
        while read -r need file; do echo $(($(cat "$file") - need)) >"$file"; done <"$work/pages"
    fi
    if [ -e "$work/words" ]; then
        while read -r word file; do echo "$word" >"$file"; done <"$work/words"
    fi
}

