# SPDX-License-Identifier: Apache-2.0
# For cluster tests to source: a recorded machine takes this one's place on all
# nodes. machine: its hwloc XML.

# plant [FROM TO]: write the recorded machine, with FROM replaced by TO, to the
# cache as if discovery had found it
plant()
{
    timeout 240 srun -Q -N1 -n1 --tp=1 true &&
        python3 -B - "$machine" slurm/cache/node.xml "$@" <<'END2'
import os
import re
import sys

xml = open(sys.argv[1], "rb").read()
# hwloc without libxml, as with --mpi=none, reads no comments.
xml = re.sub(rb"<!--.*?-->\s*", b"", xml, flags=re.S)
if len(sys.argv) > 3:
    xml = xml.replace(sys.argv[3].encode(), sys.argv[4].encode())
# Keep the first words of the cache file's header; compute size and checksum.
key = open(sys.argv[2], "rb").readline().rsplit(None, 2)[0]
total = 0xcbf29ce484222325
for byte in xml:
    total = (total ^ byte) * 0x100000001b3 % 2 ** 64
with open(sys.argv[2] + ".test", "wb") as file:
    file.write(b"%s %d %x\n" % (key, len(xml), total) + xml)
os.rename(sys.argv[2] + ".test", sys.argv[2])
END2
}
