# ---- Control groups: one with the host's budget, in it one per container

version= # 1: a directory per controller; 2: one for all; empty: none can be made
cpu=     # where groups are made
memory=
leaf=
handed=  # whether controllers were handed down that were not before
tree=$(basename "$work")

# mounted TYPE OPTION: where such control groups are mounted.
mounted() { awk -v type="$1" -v option="$2" '$3 == type && index("," $4 ",", "," option ",") { print $2; exit }' /proc/mounts; }

# own_group CONTROLLER: the group that this script is in; version 2's has no controller's name.
own_group() { awk -F: -v name="$1" 'index("," $2 ",", "," name ",") { print $3; exit }' /proc/self/cgroup; }

# beside MOUNT GROUP: the directory of the group; the mount point where the group lies outside (within a container).
beside() { if [ -d "${1%/}${2%/}" ]; then echo "${1%/}${2%/}"; else echo "$1"; fi; }

# find_groups: choose where groups are made (below our own, so that what limits us limits them too) and make the host's.
find_groups() {
    groups=yes
    cpu=$(mounted cgroup cpu)
    memory=$(mounted cgroup memory)
    if [ -n "$cpu" ] && [ -n "$memory" ]; then
        cpu=$(beside "$cpu" "$(own_group cpu)")
        memory=$(beside "$memory" "$(own_group memory)")
        make_group '' && version=1
        return 0
    fi
    cpu=$(mounted cgroup2 rw)
    memory=$cpu
    [ -n "$cpu" ] || return 0
    # Only the root of all groups (it alone has no cgroup.type) may hold processes and have limited groups below it. In
    # any other, what runs there, and that must be this script alone, first moves into a leaf.
    if [ -e "$cpu/cgroup.type" ] || [ "$(id -u)" != 0 ]; then
        cpu=$(beside "$cpu" "$(own_group '')")
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

# make_group NAME: the directories of a container's group; "" names the host's.
make_group() {
    for parent in "$cpu" "$memory"; do
        [ -d "$parent/$tree${1:+/$1}" ] || mkdir -- "$parent/$tree${1:+/$1}" 2>/dev/null || return 1
    done
}

# group NAME QUOTA BYTES WEIGHT [PERIOD]: make a container's group, or limit the host's (""). QUOTA is in microseconds of CPU per
# PERIOD (100000 microseconds), WEIGHT as in version 2 (100 is normal); an empty one is no limit.
group() {
    [ -n "$version" ] || return 0
    make_group "$1" || die "the control group of $1 cannot be made"
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
limit() { [ -z "$2" ] || { echo "$2" >"$1"; } 2>/dev/null || warn "the kernel does not take $2 for $1: that limit is missing"; }

# told: say so if there are no groups.
told() {
    [ -n "$version" ] || warn 'no control groups can be made here, so the containers have NO LIMITS and figures will differ.
  Run this as root, or with: systemd-run --user --scope -p Delegate=yes sh SCRIPT'
}

# join NAME: put this very process into a container's group, for enter.
join() {
    [ -n "$version" ] || return 0
    for parent in "$cpu" "$memory"; do echo 0 >"$parent/$tree/$1/cgroup.procs"; done # 0 is the writer itself
}

remove_groups() {
    for parent in "$cpu" "$memory"; do
        tries=0 # the kernel may take a moment to see that a group is empty
        while [ -n "$parent" ] && [ -d "$parent/$tree" ] && [ "$tries" -lt 50 ]; do
            find "$parent/$tree" -depth -type d -exec rmdir -- {} + 2>/dev/null || sleep 0.1
            tries=$((tries + 1))
        done
        [ "$tries" -lt 50 ] || warn "$parent/$tree cannot be removed"
    done
    for controller in $handed; do echo "-$controller" >"$cpu/cgroup.subtree_control" || :; done
    if [ -n "$leaf" ]; then
        echo $$ >"$cpu/cgroup.procs" || :
        rmdir -- "$leaf" || :
    fi
}
