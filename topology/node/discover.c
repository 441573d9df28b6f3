/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* setresuid() */
#include "config.h"

#include "topology/node/discover.h"

#include <errno.h>
#include <grp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "topology/base/capture.h"
#include "topology/base/files.h"
#include "topology/node/cache.h"
#include "topology/node/hwloc.h"

/* What root finds of a node is published to all its users. /sys keeps serial
 * numbers for root, and hwloc collects them. Two walls keep them out: the
 * child that asks hwloc is not root, and of what hwloc says about an object
 * only what Plait reads is kept. */

/* -- the first wall: rights ----------------------------------------------- */

/* The user and group of the child. Not "nobody", whose other processes could
 * stop or kill it: a number that no user has, below those that are invalid (-1)
 * and that old systems give to nobody (-2). In a user namespace without that
 * number it is nobody, and then its processes can make the discovery fail. They
 * cannot change what it finds, as the child cannot be traced. */
static const unsigned nobodies[] = {0xfffffffd, 65534};

/* A site may give the GPUs' device files to a group of its own. */
static int find_groups(gid_t *group)
{
    struct stat st;

    if (stat(NODE_NVIDIA_DEVICE, &st) < 0 || st.st_gid == 0 ||
        (st.st_mode & S_IROTH))
        return 0;
    *group = st.st_gid;
    return 1;
}

static int drop_rights(struct plait_error *err)
{
    gid_t group = 0;
    int n = find_groups(&group), rc = -1;

    if (geteuid() != 0)
        return 0;
    for (size_t i = 0; rc < 0 && i < sizeof(nobodies) / sizeof(nobodies[0]);
         i++) {
        unsigned id = nobodies[i];

        rc = setgroups((size_t)n, &group);
        rc = rc < 0 ? rc : setresgid(id, id, id);
        rc = rc < 0 ? rc : setresuid(id, id, id);
    }
    if (rc < 0)
        return plait_errorf(err,
                            "cannot give up root's rights to discover this "
                            "node: %s",
                            strerror(errno));
    /* Where the securebits keep capabilities. */
    if (setuid(0) == 0)
        return plait_errorf(err, "root's rights cannot be given up for good");
    /* The change of the user made the kernel forget the signal. */
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        prctl(PR_SET_DUMPABLE, 0) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
        return plait_errorf(err, "prctl: %s", strerror(errno));
    return 0;
}

/* -- the second wall: contents -------------------------------------------- */

static bool is_read(const char *name)
{
    static const char *const names[] = {NODE_INFO_MBPS,  NODE_INFO_PART,
                                        NODE_INFO_CXI,   NODE_INFO_VENDOR,
                                        NODE_INFO_MODEL, NODE_INFO_DEVICE};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

static void forget_infos(hwloc_obj_t obj)
{
    unsigned kept = 0;

    for (unsigned i = 0; i < NODE_INFOS_COUNT(obj); i++) {
        struct hwloc_info_s *info = &NODE_INFOS(obj)[i];

        if (is_read(info->name)) {
            NODE_INFOS(obj)[kept++] = *info;
            continue;
        }
        free(info->name);
        free(info->value);
    }
    NODE_INFOS_COUNT(obj) = kept;
}

static void forget_all_infos(hwloc_topology_t topology)
{
    static const int depths[] = {
        HWLOC_TYPE_DEPTH_NUMANODE,   HWLOC_TYPE_DEPTH_BRIDGE,
        HWLOC_TYPE_DEPTH_PCI_DEVICE, HWLOC_TYPE_DEPTH_OS_DEVICE,
        HWLOC_TYPE_DEPTH_MISC,       HWLOC_TYPE_DEPTH_MEMCACHE,
    };
    int levels = hwloc_topology_get_depth(topology);
    int n = (int)(sizeof(depths) / sizeof(depths[0]));

    for (int i = 0; i < levels + n; i++) {
        int depth = i < levels ? i : depths[i - levels];
        hwloc_obj_t obj = NULL;

        while ((obj = hwloc_get_next_obj_by_depth(topology, depth, obj)))
            forget_infos(obj);
    }
}

/* -- the child ------------------------------------------------------------ */

/* A child's answer: "+" and a node as XML, or "-" and the reason. */
static void say(int fd, const char *text, size_t size, int good)
{
    if (plait_files_write(fd, good ? "+" : "-", 1) == 0)
        plait_files_write(fd, text, size);
}

static void discover_in_child(void *arg, int fd)
{
    struct plait_error err = {0};
    struct plait_node *node = NULL;
    size_t size = 0;
    char *xml = NULL;

    (void)arg;
    if (drop_rights(&err) == 0 && (node = node_create_whole(&err))) {
        forget_all_infos(node->topology);
        xml = plait_node_export_xml(node, &size);
        if (!xml)
            plait_errorf(&err, "out of memory");
    }
    say(fd, xml ? xml : err.text, xml ? size - 1 : strlen(err.text),
        xml != NULL);
    free(xml);
    plait_node_destroy(node);
}

/* The child's answer without the "+". */
static char *check_answer(char *text, size_t *size, struct plait_error *err)
{
    if (*text != '+') {
        plait_errorf(err, "%s", *text ? text + 1 : "discovery crashed");
        goto error;
    }
    *size -= 1;
    memmove(text, text + 1, *size + 1);
    if (*size <= NODE_XML_MOST && strlen(text) == *size &&
        strncmp(text, "<?xml", 5) == 0)
        return text;
    plait_errorf(err, "this node's topology is too large, or no XML");
error:
    free(text);
    errno = EIO;
    return NULL;
}

char *node_discover_xml(int seconds, size_t *size, struct plait_error *err)
{
    char *text = plait_capture_call(discover_in_child, NULL, seconds, size);

    if (text)
        return check_answer(text, size, err);
    if (errno == ETIMEDOUT)
        plait_errorf(err,
                     "this node's topology could not be discovered in %d "
                     "second%s (a driver that hangs?)",
                     seconds, seconds == 1 ? "" : "s");
    else
        plait_errorf(err, "cannot start a process: %s", strerror(errno));
    return NULL;
}

struct plait_node *plait_node_discover(int seconds, struct plait_error *err)
{
    struct plait_node *node = NULL;
    size_t size;
    char *xml = node_discover_xml(seconds, &size, err);

    if (xml)
        node = plait_node_create_cached(xml, size + 1, err);
    free(xml);
    return node;
}
