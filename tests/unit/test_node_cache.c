/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* RTLD_NEXT */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tap.h"
#include "temp_path.h"
#include "topology/node/cache.h"

static char dir[TEMP_PATH], file[256];

/* In place of the C library's: slurmd and slurmstepd have threads that read the
 * environment, so it must not be moved. */
static int moved;

int setenv(const char *name, const char *value, int overwrite)
{
    void *found = dlsym(RTLD_NEXT, "setenv");
    int (*real)(const char *, const char *, int);

    moved++;
    memcpy(&real, &found, sizeof(real));
    return real(name, value, overwrite);
}

int unsetenv(const char *name)
{
    void *found = dlsym(RTLD_NEXT, "unsetenv");
    int (*real)(const char *);

    moved++;
    memcpy(&real, &found, sizeof(real));
    return real(name);
}

static int open_files(void)
{
    DIR *fds = opendir("/proc/self/fd");
    int n = 0;

    while (fds && readdir(fds))
        n++;
    if (fds)
        closedir(fds);
    return n;
}

/* Overwrites `n` bytes at `at`, from the end if negative. */
static void overwrite(long at, const char *text, size_t n)
{
    FILE *f = fopen(file, "r+e");

    if (!f)
        return;
    fseek(f, at, at < 0 ? SEEK_END : SEEK_SET);
    fwrite(text, 1, n, f);
    fclose(f);
}

static void test_written(void)
{
    struct plait_error err = {0};
    struct plait_node *live, *node;
    int before = open_files();
    char **list;

    ok(!plait_node_load_cache(dir, &err) && strstr(err.text, "No such file"),
       "none yet: %s", err.text);
    setenv("HWLOC_SYNTHETIC", "pack:7 core:1 pu:1", 1);
    moved = 0;
    list = environ;
    ok(plait_node_refresh_cache(dir, 60, &err) == 1, "written %s", err.text);
    ok(plait_node_refresh_cache(dir, 60, &err) == 0, "and then kept");
    node = plait_node_load_cache(dir, &err);
    live = plait_node_create(0, &err);
    ok(node && live && node->pus == live->pus && node->pus != 7 &&
           node->ngpus == live->ngpus && node->nnics == live->nnics,
       "it reads back as this machine, whatever HWLOC_* says");
    ok(node && hwloc_topology_is_thissystem(node->topology),
       "tasks can be bound by it");
    ok(strcmp(getenv("HWLOC_SYNTHETIC"), "pack:7 core:1 pu:1") == 0 &&
           !getenv("HWLOC_PLUGINS_PATH") && environ == list,
       "the environment is as before");
    ok(moved == 0, "and no other thread could see it move");
    unsetenv("HWLOC_SYNTHETIC");
    plait_node_destroy(node);
    plait_node_destroy(live);
    ok(open_files() == before, "no file is left open");
    ok(waitpid(-1, NULL, WNOHANG) == -1, "no process is left behind");
}

static void refused(const char *what, const char *reason)
{
    struct plait_error err = {0};
    struct plait_node *node = plait_node_load_cache(dir, &err);

    ok(!node && strstr(err.text, reason), "%s: %s", what, err.text);
    plait_node_destroy(node);
    ok(plait_node_refresh_cache(dir, 60, &err) == 1 &&
           plait_node_check_cache(dir, &err) == 0,
       "... and rebuilt");
}

static void test_damaged(void)
{
    overwrite(-10, "x", 1);
    refused("a byte changed", "damaged");
    overwrite(0, "plait-0.0", 9);
    refused("another version", "another boot, driver or version");
    overwrite(0, "\0\0\0", 3);
    refused("zeros", "damaged");
    if (truncate(file, 200) == 0)
        refused("cut off", "damaged");
    if (truncate(file, 0) == 0)
        refused("empty", "damaged");
    chmod(file, 0666);
    refused("writable by all", "only root can write");
    unlink(file);
    if (symlink("/etc/passwd", file) == 0)
        refused("a link", "symbolic");
    unlink(file);
    if (mkfifo(file, 0644) == 0)
        refused("a pipe", "only root can write");
}

static void test_no_directory(void)
{
    struct plait_error err = {0};

    ok(plait_node_refresh_cache("/nonexistent/plait", 60, &err) == -1 &&
           strstr(err.text, "/nonexistent/plait: No such file"),
       "no directory: %s", err.text);
    ok(plait_node_refresh_cache("/dev/null", 60, &err) == -1 &&
           strstr(err.text, "/dev/null: Not a directory"),
       "a file: %s", err.text);
    unlink(file);
    chmod(dir, 0777);
    ok(plait_node_refresh_cache(dir, 60, &err) == -1 &&
           strstr(err.text, "only root can write") && access(file, F_OK) != 0,
       "anyone's: %s", err.text);
    chmod(dir, 0755);
}

/* ---- a driver that never answers ---- */

static int hangs;

/* In place of hwloc's function, which discovery calls first. */
int hwloc_topology_set_components(hwloc_topology_t topology,
                                  unsigned long flags, const char *name)
{
    void *found = dlsym(RTLD_NEXT, "hwloc_topology_set_components");
    int (*real)(hwloc_topology_t, unsigned long, const char *);

    while (hangs)
        pause();
    memcpy(&real, &found, sizeof(real));
    return real(topology, flags, name);
}

static void test_hangs(void)
{
    struct plait_error err = {0};
    struct plait_node *node;
    int before = open_files();

    unlink(file);
    hangs = 1;
    errno = 0;
    ok(plait_node_refresh_cache(dir, 1, &err) == -1 && errno == ETIMEDOUT &&
           strstr(err.text, "could not be discovered in 1 second "),
       "writing it ends in time: %s", err.text);
    errno = 0;
    ok(!plait_node_discover(1, &err) && errno == ETIMEDOUT,
       "and so does a discovery");
    ok(waitpid(-1, NULL, WNOHANG) == -1, "no process is left behind");
    ok(open_files() == before, "and no file");
    hangs = 0;
    node = plait_node_discover(60, &err);
    ok(node && hwloc_topology_is_thissystem(node->topology),
       "a driver that answers");
    plait_node_destroy(node);
}

static void test_locks(void)
{
    struct plait_error err = {0};
    char lock[256];
    struct stat st;
    int fd;

    /* Any user may do this, as the directory is readable. */
    unlink(file);
    fd = open(dir, O_RDONLY);
    ok(flock(fd, LOCK_EX) == 0 && plait_node_refresh_cache(dir, 60, &err) == 1,
       "a locked directory does not matter");
    close(fd);
    snprintf(lock, sizeof(lock), "%s/node.lock", dir);
    ok(stat(lock, &st) == 0 && (st.st_mode & 0777) == 0600,
       "the lock is its owner's alone");
    fd = open(lock, O_RDONLY);
    ok(flock(fd, LOCK_EX) == 0 && plait_node_check_cache(dir, &err) == 0,
       "a reader does not ask for it");
    unlink(file);
    ok(plait_node_refresh_cache(dir, 60, &err) == -1 &&
           strstr(err.text, "another process is writing"),
       "a writer does not wait for it: %s", err.text);
    close(fd);
    unlink(lock);
}

int main(void)
{
    if (!mkdtemp(temp_path(dir, "cache")))
        return 99;
    chmod(dir, 0755);
    snprintf(file, sizeof(file), "%s/node.xml", dir);
    test_written();
    test_damaged();
    test_no_directory();
    test_hangs();
    test_locks();
    unlink(file);
    rmdir(dir);
    return done_testing();
}
