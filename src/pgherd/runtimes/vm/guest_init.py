"""The script that is process 1 of a guest once its root image is mounted: disks, network, control groups, then the agent."""

from __future__ import annotations

AGENT_PORT = "pgherd.agent"
"""Name of the virtio-serial port between the node on the host and the agent in the guest."""
HOME = "/usr/lib/pgherd"
"""Directory of what pgherd itself puts into the root image."""
AGENT = "agent"
"""The agent's program in the guest, a compiled module of this name in ``HOME``; what it imports of ours lies beside it."""
ADDRESS = "10.0.2.15"
"""The guest's address in the network that QEMU makes up for it."""
GATEWAY = "10.0.2.2"
"""The host's in the same."""
READY = "pgherd: the guest has come up"
"""What the console says before the agent starts."""

INIT = f"""#!/bin/sh
# Process 1 of the guest. It powers the guest off when the agent ends.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:{HOME}/bin LC_ALL=C TZ=UTC HOME=/root TERM=vt100
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs dev /dev
stop() {{ echo "pgherd: $*"; sync; poweroff -f; }}
mkdir -p /dev/shm /dev/pts
mount -t tmpfs -o mode=1777 shm /dev/shm; mount -t devpts -o mode=620,ptmxmode=666 pts /dev/pts
mount -t cgroup2 cgroup /sys/fs/cgroup
ln -sf /proc/self/fd /dev/fd; ln -sf /proc/self/mounts /etc/mtab

disk() {{ # SERIAL PATH
    for block in /sys/block/vd*; do
        if [ "$(cat $block/serial)" = "$1" ]; then
            mkdir -p "$2" && mount -t ext4 /dev/${{block##*/}} "$2" && return
        fi
    done
    stop "disk $1 cannot be mounted at $2"
}}
shell=
for word in $(cat /proc/cmdline); do
    value=${{word#*=}}
    case $word in
    pgherd.name=*) hostname "$value" ;;
    pgherd.disk=*) disk "${{value%%:*}}" "${{value#*:}}" ;;
    pgherd.shell=*) shell=$value ;;
    esac
done

ip link set lo up
if ip link set eth0 up 2>/dev/null; then
    ip addr add {ADDRESS}/24 dev eth0
    ip route add default via {GATEWAY}
fi

tries=0
while [ ! -e /dev/virtio-ports/{AGENT_PORT} ] && [ $tries -lt 200 ]; do
    mkdir -p /dev/virtio-ports
    for port in /sys/class/virtio-ports/*; do
        [ ! -s $port/name ] || ln -sf "../${{port##*/}}" "/dev/virtio-ports/$(cat $port/name)"
    done
    [ -e /dev/virtio-ports/{AGENT_PORT} ] || {{ tries=$((tries + 1)); sleep 0.05; }}
done

if [ -n "$shell" ]; then
    (while :; do setsid cttyhack /bin/sh -i </dev/$shell >/dev/$shell 2>&1; sleep 1; done) &
fi
read -r python <{HOME}/interpreter
echo "{READY}"
# Where memory runs out the kernel is to end a server, which is told, and not the one that tells.
(echo -1000 >/proc/self/oom_score_adj; exec "$python" -E -s -S {HOME}/{AGENT}.pyc /dev/virtio-ports/{AGENT_PORT})
stop "the agent ended with exit code $?"
"""
