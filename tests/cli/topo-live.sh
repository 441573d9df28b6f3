#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What a live node shows beyond hwloc: NVML's links and faults, the kernel
# driver's xGMI links, port speeds. The libraries and sysfs files are made here; hwloc reads a
# fixture and is told that it is this machine.
plait=$top_builddir/plait
fake=$top_builddir/tests/unit/.libs/fake_nvml.so
fixture=$top_srcdir/tests/fixtures/hwloc/one-of-everything.xml
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
LC_ALL=C export LC_ALL
. "$top_srcdir/tests/lib/check.sh"

mkdir "$tmp/lib" && ln -s "$fake" "$tmp/lib/libnvidia-ml.so.1"
# Without the fixture's matrix of links, links can only come from NVML.
sed '/<distances2hetero/,/<\/distances2hetero/d' "$fixture" >"$tmp/live.xml"

live() { # MODE: what plait topo says with this fake NVML
    FAKE_NVML=$1 LD_LIBRARY_PATH=$tmp/lib HWLOC_XMLFILE=$tmp/live.xml \
        HWLOC_THISSYSTEM=1 "$plait" topo
}

if [ -f "$fake" ]; then
    live direct >"$tmp/out"
    grep -q '^NVLink joins GPUs 0 1: 100 GB/s' "$tmp/out"
    check 'four direct links of an H100 are 100 GB/s' $?
    grep -q 'GPU 1  0000:06:00.0  NVIDIA H100 number 6' "$tmp/out"
    check 'NVML knows the name' $?
    live switch | grep -q '^NVLink joins GPUs 0 1: 450 GB/s'
    check 'eighteen links to a switch are 450 GB/s' $?
    live mig >"$tmp/out"
    grep -q '^5 GPUs' "$tmp/out" && grep -q 'part 1 of 2' "$tmp/out" &&
        ! grep -q 'NVLink' "$tmp/out"
    check 'MIG instances are GPUs, without links' $?
    FAKE_NVML=mig LD_LIBRARY_PATH=$tmp/lib HWLOC_XMLFILE=$tmp/live.xml \
        HWLOC_THISSYSTEM=1 "$plait" topo --json | grep -o '"uuid": *"[^"]*' |
        sed 's/.*"//' >"$tmp/out"
    [ "$(head -n3 "$tmp/out" | tr '\n' ' ')" = \
        'GPU-5-of-the-fake MIG-10-of-the-fake MIG-12-of-the-fake ' ]
    check 'UUIDs of GPUs and of MIG instances' $?
    live broken >"$tmp/out" && ! grep -q NVLink "$tmp/out" &&
        grep -q '^4 GPUs' "$tmp/out"
    check 'an NVML that does not start is no error' $?
    FAKE_NVML_SICK=row LD_LIBRARY_PATH=$tmp/lib HWLOC_XMLFILE=$tmp/live.xml \
        HWLOC_THISSYSTEM=1 "$plait" doctor --json >"$tmp/out" 2>/dev/null
    python3 - "$tmp/out" <<'END'
import json
import sys

health = [c for c in json.load(open(sys.argv[1]))["checks"]
          if c["about"] == "health" and c["kind"] == "bad"]
assert len(health) == 1 and health[0]["text"].startswith(
    "GPU 0000:06:00.0: a broken row of memory"), health
END
    check 'plait doctor names a GPU that NVML calls broken' $?
    FAKE_NVML=direct LD_LIBRARY_PATH=$tmp/lib HWLOC_XMLFILE=$tmp/live.xml \
        "$plait" topo >"$tmp/out" && ! grep -q NVLink "$tmp/out"
    check 'a topology from elsewhere does not get this machine'\''s links' $?
    # A rack whose nodes NVLink joins, as `plait doctor` sees it from one of them.
    doctor() { # STATE PATTERN
        FAKE_NVML=switch FAKE_NVML_DOMAIN=$1 LD_LIBRARY_PATH=$tmp/lib \
            HWLOC_XMLFILE=$tmp/live.xml HWLOC_THISSYSTEM=1 PATH=/nowhere \
            "$plait" doctor >"$tmp/out" 2>&1
        tr -s '\n ' ' ' <"$tmp/out" | grep -q "$2"
        check "NVLink domain, $1: $2" $? || sed 's/^/# /' "$tmp/out"
    }
    for state in ready old; do
        doctor $state 'in the NVLink domain abababababababababababababababab\.7;'
        [ -d /dev/nvidia-caps-imex-channels ] ||
            doctor $state 'there is no channel in /dev/nvidia-caps-imex-channels'
    done
    doctor mixed 'are not all in the same NVLink domain'
    doctor starting 'are still joining the NVLink fabric'
    doctor failed 'have failed to join the NVLink fabric'
    # Lines of three nodes in two domains make a fabric with the tree's switches.
    for i in 1 2 3; do
        domain=ready
        [ $i = 3 ] && domain=other
        SLURM_TOPOLOGY_ADDR=top.leaf.gb$i SLURMD_NODENAME=gb$i \
            SLURM_TOPOLOGY_ADDR_PATTERN=switch.switch.node FAKE_NVML=switch \
            FAKE_NVML_DOMAIN=$domain LD_LIBRARY_PATH=$tmp/lib "$plait" topo --domain
    done >"$tmp/fabric"
    grep -qx 'top.leaf.abababababababababababababababab-7.gb1 switch.switch.block.node' \
        "$tmp/fabric"
    check 'the line of a node in a tree' $?
    "$plait" plan --tp=8 --nodes='gb[1-2]' --tasks-per-node=4 \
        --fabric "$tmp/fabric" >"$tmp/out" && [ "$(grep -c 'gb[12].* abab.*-7$' "$tmp/out")" = 2 ]
    check 'such lines are blocks for tp over nodes' $?
    "$plait" plan --tp=8 --nodes='gb[2-3]' --tasks-per-node=4 \
        --fabric "$tmp/fabric" 2>&1 | grep -q 'takes 2 nodes of one block'
    check '... and not over two domains' $?
    FAKE_NVML=switch LD_LIBRARY_PATH=$tmp/lib "$plait" topo --domain 2>"$tmp/out"
    [ $? = 1 ] && grep -q 'with no other node' "$tmp/out"
    check 'a machine in no domain has no line' $?
    FAKE_NVML=switch LD_LIBRARY_PATH=$tmp/lib HWLOC_XMLFILE=$tmp/live.xml \
        HWLOC_THISSYSTEM=1 PATH=/nowhere "$plait" doctor 2>&1 |
        grep -qiE 'nvlink domain|imex'
    [ $? = 1 ]
    check 'nothing of it on a machine that is in none' $?
else
    echo "ok 1 # SKIP no shared libraries here"
    n=1
fi

# A snapshot of sysfs: two processors, two AMD GCDs with two xGMI links, which
# the driver counts against the bus, the second in two partitions; an Intel card
# of two tiles; a virtual machine's Ethernet, a 200 Gbit/s InfiniBand port and
# a Slingshot card.
root=$tmp/root
put() { # FILE TEXT
    mkdir -p "$root/$(dirname "$1")"
    printf '%b\n' "$2" >"$root/$1"
}
put proc/cpuinfo 'processor\t: 0\n\nprocessor\t: 1'
put sys/devices/system/cpu/online 0-1
put sys/devices/system/node/node0/cpumap 3
put sys/devices/system/node/node0/meminfo 'Node 0 MemTotal: 1000000 kB'
for cpu in 0 1; do
    for at in sys/devices/system/cpu sys/bus/cpu/devices; do
        put $at/cpu$cpu/topology/core_id $cpu
        put $at/cpu$cpu/topology/physical_package_id 0
        put $at/cpu$cpu/topology/thread_siblings $((cpu + 1))
        put $at/cpu$cpu/topology/core_siblings 3
    done
done
pci() { # BUSID CLASS VENDOR DEVICE
    mkdir -p "$root/sys/devices/pci0000:00/$1" "$root/sys/bus/pci/devices"
    ln -s "../../../devices/pci0000:00/$1" "$root/sys/bus/pci/devices/$1"
    put "sys/devices/pci0000:00/$1/class" "$2"
    put "sys/devices/pci0000:00/$1/vendor" "$3"
    put "sys/devices/pci0000:00/$1/device" "$4"
    put "sys/devices/pci0000:00/$1/local_cpus" 3
}
pci 0000:07:00.0 0x020700 0x15b3 0x101b
pci 0000:81:00.0 0x038000 0x1002 0x7408
pci 0000:91:00.0 0x038000 0x1002 0x7408
pci 0000:a1:00.0 0x020000 0x1d0f 0xefa1
pci 0000:b1:00.0 0x038000 0x8086 0x0bda
pci 0000:c1:00.0 0x020000 0x17db 0x0501
mkdir "$root/sys/devices/pci0000:00/0000:b1:00.0/tile0" \
    "$root/sys/devices/pci0000:00/0000:b1:00.0/tile1"
mkdir -p "$root/sys/devices/pci0000:00/0000:c1:00.0/cxi/cxi3"
named() { # CLASS NAME BUSID
    mkdir -p "$root/sys/class/$1/$2"
    ln -s "../../../devices/pci0000:00/$3" "$root/sys/class/$1/$2/device"
}
named infiniband mlx5_0 0000:07:00.0
named net eth2 0000:a1:00.0
put sys/class/infiniband/mlx5_0/ports/1/rate '200 Gb/sec (4X HDR)'
put sys/class/net/eth2/speed 100000
nodes=sys/class/kfd/kfd/topology/nodes
put $nodes/0/properties 'cpu_cores_count 2\nsimd_count 0\nlocation_id 0'
put $nodes/1/properties "simd_count 440\nlocation_id $((0x9100))\ndomain 0
unique_id 18446744073709551615"
put $nodes/2/properties "simd_count 220\nlocation_id $((0x8100))\ndomain 0
drm_render_minor 129\nunique_id 12297829382473034410"
put $nodes/3/properties "simd_count 220\nlocation_id $((0x10008100))\ndomain 0"
put $nodes/1/io_links/0/properties 'type 2\nnode_to 0\nmax_bandwidth 64000'
put $nodes/1/io_links/1/properties 'type 11\nnode_to 2\nmax_bandwidth 150000'
put $nodes/2/io_links/0/properties 'type 11\nnode_to 1\nmax_bandwidth 150000'
HWLOC_FSROOT=$root "$plait" topo >"$tmp/out"
grep -q '^5 GPUs, 3 NICs, 1 NUMA node, 2 cores' "$tmp/out"
check 'a sysfs snapshot reads' $?
grep -q '^xGMI joins GPUs 0 1 2: 150 GB/s' "$tmp/out"
check 'xGMI links from the kernel driver' $?
grep -q 'GPU 1  0000:81:00.0  Instinct MI250X, part 1 of 2, 2 in ROCR_VIS' \
    "$tmp/out" && grep -q 'GPU 2  .*MI250X, 0 in ROCR_VISIBLE_DEV' "$tmp/out"
check "AMD's partitions in its driver's order" $?
grep -q 'GPU 4  0000:b1:00.0  Data Center GPU Max 1100, part 1 of 2' "$tmp/out"
check "Intel's tiles" $?
grep -q 'NIC 2  cxi3  0000:c1:00.0' "$tmp/out"
check "Slingshot's device, which this hwloc may not list" $?
grep -q 'NIC 0  mlx5_0  0000:07:00.0  25 GB/s' "$tmp/out" &&
    grep -q 'NIC 1  eth2  0000:a1:00.0  12.5 GB/s' "$tmp/out"
check 'port speeds' $?
echo "1..$n"
