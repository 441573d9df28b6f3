/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* unshare(), RTLD_NEXT */
#include <dlfcn.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tap.h"
#include "temp_path.h"
#include "topology/node/cache.h"

/* Serial numbers that /sys keeps for root are not published with the node's
 * topology, and the process that looks for it is not root. */

static const char *const serials[][2] = {
    {"product_serial", "SERIAL-OF-PRODUCT"},
    {"product_uuid", "UUID-OF-PRODUCT"},
    {"board_serial", "SERIAL-OF-BOARD"},
    {"board_asset_tag", "TAG-OF-BOARD"},
    {"chassis_serial", "SERIAL-OF-CHASSIS"},
    {"chassis_asset_tag", "TAG-OF-CHASSIS"},
};
enum { SERIALS = sizeof(serials) / sizeof(serials[0]) };

static char dir[TEMP_PATH], file[256], dmi[64];

/* What the discovery's process could do. */
static struct found {
    int looked, uid, gid, groups, serial, root, dumpable, privileges;
} * found;

/* In place of hwloc's function, which discovery calls first. */
int hwloc_topology_set_components(hwloc_topology_t topology,
                                  unsigned long flags, const char *name)
{
    void *at = dlsym(RTLD_NEXT, "hwloc_topology_set_components");
    int (*real)(hwloc_topology_t, unsigned long, const char *);
    char path[128];

    if (found) {
        snprintf(path, sizeof(path), "%s/product_serial", dmi);
        found->uid = (int)getuid();
        found->gid = (int)getgid();
        found->groups = getgroups(0, NULL);
        found->serial = open(path, O_RDONLY | O_CLOEXEC) >= 0;
        found->dumpable = prctl(PR_GET_DUMPABLE);
        found->privileges = !prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0);
        found->root = setuid(0) == 0;
        found->looked = 1;
    }
    memcpy(&real, &at, sizeof(real));
    return real(topology, flags, name);
}

static int write_text(const char *path, const char *text, mode_t mode)
{
    FILE *f = fopen(path, "we");

    return !f || fputs(text, f) < 0 || fclose(f) || chmod(path, mode) ? -1 : 0;
}

/* Lay a /sys with these files over the real one, for this process alone. */
static int fake_sys(void)
{
    static const char real[] = "/sys/devices/virtual/dmi/id";
    char path[128];
    int rc;

    if (geteuid() != 0 || unshare(CLONE_NEWNS) < 0 ||
        mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return -1;
    rc = access(real, F_OK);
    snprintf(dmi, sizeof(dmi), "%s", rc == 0 ? real : "/sys/class/dmi/id");
    if (mount("none", rc == 0 ? real : "/sys/class", "tmpfs", 0, NULL) < 0)
        return -1;
    if (rc < 0 && (mkdir("/sys/class/dmi", 0755) || mkdir(dmi, 0755)))
        return -1;
    for (int i = 0; i < SERIALS; i++) {
        snprintf(path, sizeof(path), "%s/%s", dmi, serials[i][0]);
        if (write_text(path, serials[i][1], 0400) < 0)
            return -1;
    }
    snprintf(path, sizeof(path), "%s/product_name", dmi);
    return write_text(path, "NAME-OF-PRODUCT\n", 0444);
}

/* How many of the serial numbers are in the text. */
static int count_serials(const char *text)
{
    int n = 0;

    for (int i = 0; text && i < SERIALS; i++)
        n += strstr(text, serials[i][1]) != NULL;
    return n;
}

static int count_in_cache(void)
{
    static char text[1 << 20];
    FILE *f = fopen(file, "re");
    size_t n = f ? fread(text, 1, sizeof(text) - 1, f) : 0;

    if (f)
        fclose(f);
    text[n] = '\0';
    return strstr(text, "</topology>") ? count_serials(text) : -1;
}

static void check_root(void)
{
    struct plait_error err = {0};
    struct plait_node *node = plait_node_create(0, &err);
    size_t size = 0;
    char *xml = node ? plait_node_export_xml(node, &size) : NULL;

    ok(count_serials(xml) == SERIALS,
       "hwloc shows root %d of %d serial numbers", count_serials(xml), SERIALS);
    free(xml);
    plait_node_destroy(node);
}

static void check_rights(void)
{
    struct plait_error err = {0};

    found = mmap(NULL, sizeof(*found), PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ok(plait_node_refresh_cache(dir, 60, &err) == 1, "written");
    ok(found->looked && found->uid != 0 && found->uid != 65534 &&
           found->gid == found->uid && found->groups == 0,
       "by a process of a user (%u) that no other has", (unsigned)found->uid);
    ok(!found->serial, "it could not read what root alone may");
    ok(!found->root && !found->privileges,
       "it cannot become root, nor can what it starts");
    ok(!found->dumpable, "nobody else can trace it");
    memset(found, 0, sizeof(*found));
    plait_node_destroy(plait_node_discover(60, &err));
    ok(found->looked && found->uid != 0 && !found->serial,
       "a discovery without a cache is no different");
    found = NULL;
}

static void check_contents(void)
{
    struct plait_error err = {0};
    struct plait_node *node;
    char path[128];

    ok(count_in_cache() == 0, "no serial number is published");
    for (int i = 0; i < SERIALS; i++) {
        snprintf(path, sizeof(path), "%s/%s", dmi, serials[i][0]);
        chmod(path, 0444);
    }
    unlink(file);
    ok(plait_node_refresh_cache(dir, 60, &err) == 1 && count_in_cache() == 0,
       "not even where all can read them");
    node = plait_node_load_cache(dir, &err);
    ok(node && node->pus > 0, "and the cache can be read");
    plait_node_destroy(node);
}

/* What an older Plait left goes at once, also where the discovery fails. */
static void check_old(void)
{
    struct plait_error err = {0};
    char text[512] = "", *at;
    FILE *f = fopen(file, "re");

    if (f && fgets(text, sizeof(text), f) && (at = strstr(text, " format-")))
        memmove(at, at + strcspn(at + 1, " ") + 1,
                strlen(at + strcspn(at + 1, " ") + 1) + 1);
    if (f)
        fclose(f);
    strncat(text, "<?xml SERIAL-OF-BOARD</topology>",
            sizeof(text) - strlen(text) - 1);
    write_text(file, text, 0644);
    ok(count_in_cache() == 1, "a cache of an older Plait");
    ok(plait_node_refresh_cache(dir, 60, &err) == 1 && count_in_cache() == 0,
       "is replaced");
    write_text(file, text, 0644);
    ok(plait_node_refresh_cache(dir, 0, &err) == -1 && access(file, F_OK) != 0,
       "and removed where there is no new one: %s", err.text);
}

int main(void)
{
    if (!mkdtemp(temp_path(dir, "serials")))
        return 99;
    chmod(dir, 0755);
    snprintf(file, sizeof(file), "%s/node.xml", dir);
    if (fake_sys() < 0) {
        rmdir(dir);
        return skip_all("only root can lay files over /sys");
    }
    check_root();
    check_rights();
    check_contents();
    check_old();
    snprintf(file, sizeof(file), "%s/node.lock", dir);
    unlink(file);
    rmdir(dir);
    return done_testing();
}
