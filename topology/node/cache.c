/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "topology/node/cache.h"

#include "topology/base/hash.h"
#include "topology/node/discover.h"

/* Discovery takes milliseconds on small machines and seconds on large ones,
 * so its result is kept until the next boot: one line that says whose and
 * how much, then hwloc's XML. */

#define NAME "node.xml"
#define NAME_NEW "node.xml.new"
/* The lock is a separate file, which only root can open: a process that can
 * open a file can lock it, and everyone can read the directory. */
#define NAME_LOCK "node.lock"

/* Rises with what is written for the same machine, so that a file of an older
 * Plait is replaced at once: 2 since it holds only what Plait reads, and no
 * serial numbers, 3 since it has the parts of GPUs. */
#define FORMAT "3"

/* The largest recorded machine needs 1 MiB. */
enum { FILE_MOST = NODE_XML_MOST + 512, KEY_MOST = 256, HEAD_MOST = 512 };

/* The first word of a small file, "" if there is none. */
static void read_word(const char *path, char *word, size_t size)
{
    FILE *file = fopen(path, "re");

    if (!file || !fgets(word, (int)size, file))
        word[0] = '\0';
    word[strcspn(word, " \t\n")] = '\0';
    if (file)
        fclose(file);
}

static int count_entries(const char *path)
{
    DIR *dir = opendir(path);
    struct dirent *entry;
    int n = 0;

    while (dir && (entry = readdir(dir)))
        n += entry->d_name[0] != '.';
    if (dir)
        closedir(dir);
    return n;
}

/* A number that changes with the names of the MIG instances, which come and go
 * without a new boot: gpu0/mig/gi1/ci0. Everyone can read them. */
static unsigned hash_instances(void)
{
    static const char pattern[] =
        "/proc/driver/nvidia/capabilities/gpu*/mig/gi*/ci*";
    uint64_t hash = PLAIT_HASH_START;
    glob_t found = {0};

    if (glob(pattern, 0, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc; i++)
            hash = plait_hash_bytes(hash, found.gl_pathv[i],
                                    strlen(found.gl_pathv[i]) + 1);
    globfree(&found);
    return (unsigned)(hash ^ hash >> 32);
}

/* What must be the same when the cache is written and read. MIG instances and
 * the partitions of AMD's GPUs, each of which is a node of KFD's, change
 * without a new boot. slurmd may start before the drivers do, and before
 * NVIDIA's device files exist, without which NVML does not answer a process
 * without root's rights. So all of these count as well. */
static int make_key(char *key, struct plait_error *err)
{
    char boot[64], nvidia[64];

    read_word("/proc/sys/kernel/random/boot_id", boot, sizeof(boot));
    if (!boot[0])
        return plait_errorf(err, "this system has no boot id");
    read_word("/sys/module/nvidia/version", nvidia, sizeof(nvidia));
    snprintf(key, KEY_MOST,
             "plait-" PACKAGE_VERSION " format-" FORMAT
             " boot-%s hwloc-%x nvidia-%s-%d-%x amdgpu-%d-%d intel-%d ib-%d "
             "cxi-%d",
             boot, hwloc_get_api_version(), nvidia[0] ? nvidia : "none",
             access(NODE_NVIDIA_DEVICE, F_OK) == 0, hash_instances(),
             access("/sys/module/amdgpu", F_OK) == 0,
             count_entries("/sys/class/kfd/kfd/topology/nodes"),
             access("/sys/module/xe", F_OK) == 0 ||
                 access("/sys/module/i915", F_OK) == 0,
             count_entries("/sys/class/infiniband"),
             count_entries("/sys/class/cxi"));
    return 0;
}

/* Finds a file that was cut short or overwritten. */
static uint64_t checksum(const char *data, size_t size)
{
    return plait_hash_bytes(PLAIT_HASH_START, data, size);
}

/* Owned by root (or by whom slurmd runs as), and writable by nobody else. */
static bool is_ours(const struct stat *st)
{
    return (st->st_uid == 0 || st->st_uid == getuid()) &&
           !(st->st_mode & (S_IWGRP | S_IWOTH));
}

/* The whole file, with a NUL after it. */
static char *read_file(const char *dir, size_t *size, struct plait_error *err)
{
    char path[4096], *text = NULL;
    size_t used = 0;
    struct stat st;
    ssize_t n = 1;
    int fd;

    snprintf(path, sizeof(path), "%s/" NAME, dir);
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) < 0) {
        plait_errorf(err, "%s: %s", path, strerror(errno));
        goto error;
    }
    if (!S_ISREG(st.st_mode) || !is_ours(&st)) {
        plait_errorf(err, "%s is not a file that only root can write", path);
        goto error;
    }
    if (st.st_size > FILE_MOST || !(text = malloc((size_t)st.st_size + 1))) {
        plait_errorf(err, "%s is too large", path);
        goto error;
    }
    while (used < (size_t)st.st_size && n > 0) {
        n = read(fd, text + used, (size_t)st.st_size - used);
        used += n > 0 ? (size_t)n : 0;
    }
    text[used] = '\0';
    *size = used;
error:
    if (fd >= 0)
        close(fd);
    return text;
}

/* Where the XML starts in the cache's text; NULL if the file is incomplete, or
 * was written under another key. */
static const char *check_entry(const char *dir, const char *text, size_t size,
                               struct plait_error *err)
{
    char key[KEY_MOST], head[HEAD_MOST];
    const char *line = strchr(text, '\n');
    unsigned long long bytes, sum;
    size_t length;

    if (make_key(key, err) < 0)
        return NULL;
    length = strlen(key);
    if (line && line < text + HEAD_MOST - 1 &&
        strncmp(text, "plait-", 6) == 0) {
        memcpy(head, text, (size_t)(line - text));
        head[line - text] = '\0';
        if (strncmp(head, key, length) != 0 || head[length] != ' ') {
            plait_errorf(err,
                         "%s/" NAME " is of another boot, driver or "
                         "version",
                         dir);
            return NULL;
        }
        if (sscanf(head + length, " %llu %llx", &bytes, &sum) == 2 &&
            bytes == size - (size_t)(line + 1 - text) &&
            sum == checksum(line + 1, bytes))
            return line + 1;
    }
    plait_errorf(err, "%s/" NAME " is damaged", dir);
    return NULL;
}

struct plait_node *plait_node_load_cache(const char *dir,
                                         struct plait_error *err)
{
    struct plait_node *node = NULL;
    size_t size = 0;
    char *text = read_file(dir, &size, err);
    const char *xml = text ? check_entry(dir, text, size, err) : NULL;

    if (xml)
        node =
            plait_node_create_cached(xml, size - (size_t)(xml - text) + 1, err);
    free(text);
    return node;
}

int plait_node_check_cache(const char *dir, struct plait_error *err)
{
    size_t size = 0;
    char *text = read_file(dir, &size, err);
    int rc = text && check_entry(dir, text, size, err) ? 0 : -1;

    free(text);
    return rc;
}

static int open_safe(const char *path, struct plait_error *err)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    struct stat st;

    if (fd < 0)
        return plait_errorf(err, "%s: %s", path, strerror(errno));
    if (fstat(fd, &st) == 0 && is_ours(&st))
        return fd;
    close(fd);
    errno = EPERM;
    return plait_errorf(
        err, "%s is not a directory that only root can write to", path);
}

int plait_node_check_cache_dir(const char *dir, struct plait_error *err)
{
    int fd = open_safe(dir, err);

    if (fd < 0)
        return -1;
    close(fd);
    return 0;
}

static int open_dir(const char *path, struct plait_error *err)
{
    if (mkdir(path, 0755) < 0 && errno != EEXIST)
        return plait_errorf(err, "%s: %s", path, strerror(errno));
    return open_safe(path, err);
}

int plait_node_prepare_cache(const char *dir, struct plait_error *err)
{
    int fd = open_dir(dir, err);

    if (fd < 0)
        return -1;
    close(fd);
    return 0;
}

/* Keep other writers out. Fails at once where one is active. */
static int take_lock(int dir, struct plait_error *err)
{
    int fd =
        openat(dir, NAME_LOCK, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    struct stat st;

    if (fd < 0)
        return plait_errorf(err, NAME_LOCK ": %s", strerror(errno));
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || !is_ours(&st))
        plait_errorf(err, NAME_LOCK " is not a file of root's");
    else if (fchmod(fd, 0600) < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0)
        plait_errorf(err, errno == EWOULDBLOCK ? "another process is writing it"
                                               : "it cannot be locked");
    else
        return fd;
    close(fd);
    return -1;
}

static int write_file(int dir, const char *key, const char *xml, size_t size)
{
    FILE *file = NULL;
    int fd, failed;

    unlinkat(dir, NAME_NEW, 0);
    fd = openat(dir, NAME_NEW, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0 || fchmod(fd, 0644) < 0 || !(file = fdopen(fd, "w"))) {
        if (fd >= 0)
            close(fd);
        return -1;
    }
    fprintf(file, "%s %zu %llx\n", key, size,
            (unsigned long long)checksum(xml, size));
    fwrite(xml, 1, size, file);
    failed = fflush(file) || ferror(file);
    failed |= fclose(file) != 0;
    return failed ? -1 : renameat(dir, NAME_NEW, dir, NAME);
}

/* This process may be root: it copies the bytes and does not parse them. */
static int write_cache(int dir, int seconds, struct plait_error *err)
{
    char key[KEY_MOST], *xml;
    size_t size = 0;
    int rc, saved;

    /* An old file goes first: no other version reads it, and it may hold what
     * only root may read. */
    if (unlinkat(dir, NAME, 0) < 0 && errno != ENOENT)
        return plait_errorf(err, NAME ": %s", strerror(errno));
    if (make_key(key, err) < 0 ||
        !(xml = node_discover_xml(seconds, &size, err)))
        return -1;
    rc = write_file(dir, key, xml, size);
    if (rc < 0)
        plait_errorf(err, NAME ": %s", strerror(errno));
    saved = errno;
    free(xml);
    errno = saved;
    return rc;
}

int plait_node_refresh_cache(const char *dir, int seconds,
                             struct plait_error *err)
{
    int fd = -1, lock = -1, rc = -1, saved;

    if (plait_node_check_cache(dir, err) == 0)
        return 0;
    if ((fd = open_dir(dir, err)) < 0 || (lock = take_lock(fd, err)) < 0)
        goto error;
    /* Another process may have written it meanwhile. */
    if (plait_node_check_cache(dir, err) == 0)
        rc = 0;
    else
        rc = write_cache(fd, seconds, err) < 0 ? -1 : 1;
error:
    saved = errno;
    if (lock >= 0)
        close(lock);
    if (fd >= 0)
        close(fd);
    errno = saved;
    return rc;
}
