# ---- Huge pages, a pool of the whole host

# reserve SERVER KILOBYTES: add the pages of this size that the server needs ("default": of the kernel's default size).
reserve() {
    size=$2
    [ "$size" != default ] || size=$(awk '/^Hugepagesize:/ { print $2 }' /proc/meminfo)
    file=/sys/kernel/mm/hugepages/hugepages-${size}kB/nr_hugepages
    need=$(as "$BIN/postgres" -C shared_memory_size_in_huge_pages -D "$work/$1/data") || die "the number of huge pages that server $1 needs is unknown"
    wanted=$(($(cat "$file") + need))
    printf '%s %s\n' "$need" "$file" >>"$work/pages"
    pages=yes
    echo "$wanted" >"$file" || die "cannot reserve $need huge pages of $size kB: run this as root"
    [ "$(cat "$file")" -ge "$wanted" ] || die "the kernel does not have $need more huge pages of $size kB"
}

# transparent WORD: set whether the kernel backs shared memory with transparent huge pages.
transparent() {
    file=/sys/kernel/mm/transparent_hugepage/shmem_enabled
    now=$(sed 's/.*\[\(.*\)\].*/\1/' "$file")
    [ "$now" != "$1" ] || return 0
    printf '%s %s\n' "$now" "$file" >>"$work/words"
    pages=yes
    echo "$1" >"$file" || die "cannot write '$1' to $file: run this as root"
}

# give_back: restore the original state.
give_back() {
    if [ -e "$work/pages" ]; then
        while read -r need file; do echo $(($(cat "$file") - need)) >"$file"; done <"$work/pages"
    fi
    if [ -e "$work/words" ]; then
        while read -r word file; do echo "$word" >"$file"; done <"$work/words"
    fi
}

