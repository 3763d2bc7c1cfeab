# ---- cgroups: one for the run, and one per container in it

version= # 1: a directory per controller; 2: one for all; empty: unavailable
cpu=     # parent of the cgroups
memory=
leaf=
handed=  # controllers enabled by this script
tree=$(basename "$work")

# mounted TYPE OPTION: print the mount point of such cgroups.
mounted() { awk -v type="$1" -v option="$2" '$3 == type && index("," $4 ",", "," option ",") { print $2; exit }' /proc/mounts; }

# own_group CONTROLLER: print the cgroup of this script. In version 2 it has no controller's name.
own_group() { awk -F: -v name="$1" 'index("," $2 ",", "," name ",") { print $3; exit }' /proc/self/cgroup; }

# group_directory MOUNT GROUP: print the directory of the cgroup, or the mount point if the cgroup is outside (in a container).
group_directory() { if [ -d "${1%/}${2%/}" ]; then echo "${1%/}${2%/}"; else echo "$1"; fi; }

# find_groups: choose the parent of the cgroups (this script's cgroup, so that its limits apply) and create the run cgroup.
find_groups() {
    groups=yes
    cpu=$(mounted cgroup cpu)
    memory=$(mounted cgroup memory)
    if [ -n "$cpu" ] && [ -n "$memory" ]; then
        cpu=$(group_directory "$cpu" "$(own_group cpu)")
        memory=$(group_directory "$memory" "$(own_group memory)")
        make_group '' && version=1
        return 0
    fi
    cpu=$(mounted cgroup2 rw)
    memory=$cpu
    [ -n "$cpu" ] || return 0
    # Only the root cgroup (the only one without cgroup.type) may have both processes and limited cgroups below it. In any
    # other one, the processes, which must be this script only, first move into a leaf.
    if [ -e "$cpu/cgroup.type" ] || [ "$(id -u)" != 0 ]; then
        cpu=$(group_directory "$cpu" "$(own_group '')")
        memory=$cpu
        mkdir -- "$cpu/$tree-leaf" 2>/dev/null || return 0
        leaf=$cpu/$tree-leaf
        { echo $$ >"$leaf/cgroup.procs"; } 2>/dev/null || return 0
    fi
    for controller in cpu memory; do
        case " $(cat "$cpu/cgroup.subtree_control") " in *" $controller "*) continue ;; esac
        { echo "+$controller" >"$cpu/cgroup.subtree_control"; } 2>/dev/null || return 0
        handed="$handed $controller"
    done
    make_group '' && echo '+cpu +memory' >"$cpu/$tree/cgroup.subtree_control" && version=2
}

# make_group NAME: create the directories of a container's cgroup. "" is the run cgroup.
make_group() {
    for parent in "$cpu" "$memory"; do
        [ -d "$parent/$tree${1:+/$1}" ] || mkdir -- "$parent/$tree${1:+/$1}" 2>/dev/null || return 1
    done
}

# group NAME QUOTA BYTES WEIGHT [PERIOD]: create a container's cgroup, or limit the run cgroup (""). QUOTA is in microseconds of
# CPU per PERIOD (100000 microseconds), WEIGHT as in version 2 (100 is normal). An empty value is no limit.
group() {
    [ -n "$version" ] || return 0
    make_group "$1" || die "cannot create the cgroup of $1"
    below=$tree${1:+/$1}
    if [ "$version" = 1 ]; then
        limit "$cpu/$below/cpu.cfs_period_us" "${2:+${5:-100000}}"
        limit "$cpu/$below/cpu.cfs_quota_us" "$2"
        limit "$cpu/$below/cpu.shares" "${4:+$((${4:-0} * 1024 / 100))}"
        limit "$memory/$below/memory.limit_in_bytes" "$3"
    else
        limit "$cpu/$below/cpu.max" "${2:+$2 ${5:-100000}}"
        limit "$cpu/$below/cpu.weight" "$4"
        limit "$cpu/$below/memory.max" "$3"
    fi
}

# limit FILE VALUE
limit() { [ -z "$2" ] || { echo "$2" >"$1"; } 2>/dev/null || warn "the kernel rejects $2 for $1: that limit is missing"; }

# told: warn if there are no cgroups.
told() {
    [ -n "$version" ] || warn 'cannot create cgroups here, so the containers have NO LIMITS and results will differ.
  Run this as root, or with: systemd-run --user --scope -p Delegate=yes sh SCRIPT'
}

# join NAME: move this process into a container's cgroup, for enter.
join() {
    [ -n "$version" ] || return 0
    for parent in "$cpu" "$memory"; do echo 0 >"$parent/$tree/$1/cgroup.procs"; done # 0 is the writer itself
}

remove_groups() {
    for parent in "$cpu" "$memory"; do
        tries=0 # the kernel may notice with a delay that a cgroup is empty
        while [ -n "$parent" ] && [ -d "$parent/$tree" ] && [ "$tries" -lt 50 ]; do
            find "$parent/$tree" -depth -type d -exec rmdir -- {} + 2>/dev/null || sleep 0.1
            tries=$((tries + 1))
        done
        [ "$tries" -lt 50 ] || warn "cannot remove $parent/$tree"
    done
    for controller in $handed; do echo "-$controller" >"$cpu/cgroup.subtree_control" || :; done
    if [ -n "$leaf" ]; then
        echo $$ >"$cpu/cgroup.procs" || :
        rmdir -- "$leaf" || :
    fi
}
