/* SPDX-License-Identifier: Apache-2.0 */
/* The plugin in slurmstepd and slurmd, against a fake Slurm. */
#define _GNU_SOURCE /* clone */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fake_step.h"
#include "spank_plugin/master.h"
#include "tap.h"
#include "temp_path.h"
#include "topology/base/hash.h"
#include "topology/layout/launch.h"
#include "topology/node/cache.h"

static void test_task(void)
{
    fake_step_start();
    slurm.local = 1;
    ok(slurm_spank_user_init(NULL, 0, NULL) == 0, "user_init");
    ok(slurm_spank_task_init(NULL, 0, NULL) == 0, "task_init");
    ok(strcmp(fake_slurm_env("RANK"), "3") == 0, "RANK %s",
       fake_slurm_env("RANK"));
    ok(strcmp(fake_slurm_env("PLAIT_DP_RANK"), "1") == 0, "its coordinate");
    ok(strcmp(fake_slurm_env("NODE_RANK"), "1") == 0, "its node");
    ok(strcmp(fake_slurm_env("MASTER_ADDR"), "10.0.0.1") == 0, "MASTER_ADDR");
    ok(strcmp(fake_slurm_env("PLAIT_JOBID"), "77.0") == 0, "job and step");
    ok(slurm_spank_exit(NULL, 0, NULL) == 0, "exit");
}

static void test_untouched(void)
{
    fake_step_load(S_CTX_REMOTE);
    ok(slurm_spank_user_init(NULL, 0, NULL) == 0 &&
           slurm_spank_task_init(NULL, 0, NULL) == 0 && !slurm.env[0] &&
           !slurm.said[0],
       "without flags nothing happens");
    for (uint32_t step = 0xfffffffa; step <= 0xfffffffd; step++) {
        fake_step_start();
        slurm.step = step;
        ok(slurm_spank_user_init(NULL, 0, NULL) == 0 &&
               slurm_spank_task_init(NULL, 0, NULL) == 0 &&
               strcmp(fake_slurm_env("RANK"), "(unset)") == 0,
           "step %x is no rank", step);
    }
}

/* A wrong step must be found before a task starts, and by no earlier
 * callback. */
static void refuses(const char *what)
{
    ok(slurm_spank_user_init(NULL, 0, NULL) == 0 &&
           fake_step_in_child(slurm_spank_task_init) == 1,
       "%s stops the task", what);
    slurm_spank_exit(NULL, 0, NULL);
}

static void test_wrong_steps(void)
{
    fake_step_start();
    ok(fake_slurm_flag("tp", "bad") == 0, "a bad flag does not drain the node");
    refuses("a bad flag");
    fake_step_start();
    fake_slurm_flag("tp", "4");
    refuses("a flag that contradicts the plan");
    fake_step_start();
    slurm.tasks = 16;
    refuses("another number of tasks");
    fake_step_start();
    slurm.nodeid = 9;
    refuses("another node");
    fake_step_start();
    spank_setenv(NULL, PLAIT_ENV_PLAN, "", 1);
    refuses("an empty plan");
    fake_step_start();
    spank_setenv(NULL, PLAIT_ENV_MASTER, "10.0.0.1:0", 1);
    refuses("a bad port");
    fake_step_start();
    spank_setenv(NULL, "SLURM_HET_SIZE", "2", 1);
    refuses("a het job");
    fake_step_start();
    spank_setenv(NULL, "SLURM_STEP_GPUS", "0", 1);
    spank_setenv(NULL, "CUDA_VISIBLE_DEVICES", "0", 1);
    refuses("one GPU for two tasks");
}

/* The exit status of a task, 99 where it starts its command. */
static int end_of_task(void)
{
    int status = 0;
    pid_t pid;

    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        slurm_spank_task_init(NULL, 0, NULL);
        _exit(99);
    }
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void test_preflight_step(void)
{
    fake_step_start();
    slurm_spank_user_init(NULL, 0, NULL);
    ok(end_of_task() == 99, "a task starts its command");
    fake_step_start();
    spank_setenv(NULL, PLAIT_ENV_PREFLIGHT_STEP, "1", 1);
    slurm_spank_init_post_opt(NULL, 0, NULL);
    slurm_spank_user_init(NULL, 0, NULL);
    ok(end_of_task() == 0, "but not in the preflight of --node-spares");
    slurm_spank_exit(NULL, 0, NULL);
}

static int user_init(void *unused)
{
    (void)unused;
    _exit(slurm_spank_user_init(NULL, 0, NULL));
}

/* As Slurm does with contain_spank: the port is held by a process with files of
 * its own, in the same memory. */
static void test_contained(void)
{
    enum { STACK = 1 << 20, FILES = 16 };
    static char *volatile stack; /* is not lost where the other process ends */
    int fds[FILES], status = 1, open_still = 0;
    pid_t pid;

    stack = malloc(STACK);
    fake_step_start();
    slurm.nodeid = 0;
    pid =
        clone(user_init, stack + STACK, CLONE_VM | CLONE_VFORK | SIGCHLD, NULL);
    waitpid(pid, &status, 0);
    for (int i = 0; i < FILES; i++)
        fds[i] = open("/dev/null", O_RDONLY);
    slurm_spank_exit(NULL, 0, NULL);
    for (int i = 0; i < FILES; i++)
        open_still += close(fds[i]) == 0;
    ok(pid > 0 && status == 0 && open_still == FILES,
       "a port held elsewhere: %d of %d files are left", open_still, FILES);
    free(stack);
}

static void test_port_held(void)
{
    int fd = plait_master_port_hold(26234), other;

    errno = 0;
    other = plait_master_port_hold(26234);
    ok(fd >= 0 && other == -1 && errno == EADDRINUSE, "a port is held once");
    fake_step_start();
    slurm.nodeid = 0;
    refuses("a held port");
    close(fd);
    fd = plait_master_port_hold(26234);
    ok(fd >= 0, "until it is let go");
    /* A step on a single node takes the next port instead. */
    fake_step_start();
    spank_setenv(NULL, PLAIT_ENV_PLAN,
                 "1/2.1.1.1.1/tp-cp-ep-dp-pp/topology/0/1*2", 1);
    fake_slurm_flag("pp", "1");
    slurm.nnodes = 1;
    slurm.nodeid = 0;
    slurm.tasks = 2;
    slurm_spank_user_init(NULL, 0, NULL);
    slurm_spank_task_init(NULL, 0, NULL);
    ok(strcmp(fake_slurm_env("MASTER_PORT"), "26235") == 0 &&
           strcmp(fake_slurm_env(PLAIT_ENV_MASTER), "10.0.0.1:26235") == 0,
       "with no other node to tell, the next port is taken");
    slurm_spank_exit(NULL, 0, NULL);
    spank_setenv(NULL, PLAIT_ENV_MASTER, "10.0.0.1:26234", 1);
    spank_setenv(NULL, PLAIT_ENV_KEEP, "port,", 1);
    refuses("the user's own port, held");
    close(fd);
    other = 70000;
    fd = plait_master_port_take(&other);
    ok(fd >= 0 && other >= 25003 && other <= 29399,
       "any start leads into the range: %d", other);
    close(fd);
}

/* ---- a node with GPUs, from the cache ---- */

/* A copy in which each of AMD's PCI devices has the number that its driver
 * would give it. */
static char *number_amd(const char *xml)
{
    char *copied = malloc(strlen(xml) + 1024), *to = copied;
    int number = 0;

    while (*xml) {
        /* Not the virtual functions, :00.4 and :01.0. */
        const char *at = strstr(xml, ":00.0\" pci_type=\"0302 [1002:740f]");
        const char *last = strstr(xml, ":00.0\" pci_type=\"0380 [1002:740f]");
        const char *end;

        at = at && (!last || at < last) ? at : last;
        end = at ? strchr(at, '>') : NULL;
        if (!end) {
            strcpy(to, xml);
            break;
        }
        /* A device without children is written with one tag. */
        to += sprintf(to, "%.*s><info name=\"PlaitPart\" value=\"%d/%d/-\"/>%s",
                      (int)(end - xml) - (end[-1] == '/'), xml, number,
                      128 + number, end[-1] == '/' ? "</object>" : "");
        number++;
        xml = end + 1;
    }
    return copied;
}

/* Writes the recorded machine to the cache in place of this one; amd: its first
 * two GPUs become AMD's, and the driver is said to count all three of AMD's in
 * the order of the bus, where `amd` is 2. */
static void write_cache(const char *dir, int amd)
{
    const char *top = getenv("top_srcdir");
    char path[512], key[512] = "", *xml, *at;
    struct plait_node *node;
    FILE *file;
    size_t size;

    snprintf(path, sizeof(path),
             "%s/tests/fixtures/hwloc/one-of-everything.xml", top ? top : ".");
    node = plait_node_create_xml(path, NULL);
    xml = node ? plait_node_export_xml(node, &size) : NULL;
    while (xml && amd && (at = strstr(xml, "10de:20b2")))
        memcpy(at, "1002:740f", 9);
    if (xml && amd > 1) {
        char *numbered = number_amd(xml);

        free(xml);
        xml = numbered;
        size = strlen(xml) + 1;
    }
    snprintf(path, sizeof(path), "%s/node.xml", dir);
    unlink(path);
    plait_node_refresh_cache(dir, 60, NULL);
    file = fopen(path, "r+e");
    if (xml && file && fgets(key, sizeof(key), file)) {
        *strrchr(key, ' ') = '\0';
        *strrchr(key, ' ') = '\0';
        rewind(file);
        fprintf(file, "%s %zu %llx\n%s", key, size - 1,
                (unsigned long long)plait_hash_bytes(PLAIT_HASH_START, xml,
                                                     size - 1),
                xml);
        fflush(file);
        if (ftruncate(fileno(file), ftell(file)) < 0)
            perror(path);
    }
    if (file)
        fclose(file);
    free(xml);
    plait_node_destroy(node);
}

static void gpu_step(const char *gpus, const char *site)
{
    fake_step_start();
    spank_setenv(NULL, "SLURM_STEP_GPUS", gpus, 1);
    spank_setenv(NULL, "CUDA_VISIBLE_DEVICES", gpus, 1);
    spank_setenv(NULL, PLAIT_ENV_SITE, site, 1);
}

static void start_task(int local)
{
    slurm.local = local;
    slurm_spank_user_init(NULL, 0, NULL);
    slurm_spank_task_init(NULL, 0, NULL);
    slurm_spank_exit(NULL, 0, NULL);
}

static void test_amd(const char *dir)
{
    write_cache(dir, 1);
    gpu_step("1,0", "");
    spank_setenv(NULL, "ROCR_VISIBLE_DEVICES", "1,0", 1);
    start_task(0);
    ok(strcmp(fake_slurm_env("ROCR_VISIBLE_DEVICES"), "1,0") == 0 &&
           !strstr(fake_slurm_env("PLAIT_GPU_BUSID"), "0000:") &&
           strstr(slurm.said, "the order in which ROCm counts this node's"),
       "AMD's order is not guessed: %s", slurm.said);
    write_cache(dir, 2);
    gpu_step("1,0", "");
    spank_setenv(NULL, "ROCR_VISIBLE_DEVICES", "1,0", 1);
    start_task(0);
    ok(strcmp(fake_slurm_env("ROCR_VISIBLE_DEVICES"), "0,1") == 0 &&
           strcmp(fake_slurm_env("CUDA_VISIBLE_DEVICES"), "0,1") == 0 &&
           strcmp(fake_slurm_env("CUDA_DEVICE_ORDER"), "(unset)") == 0,
       "AMD: ROCR_VISIBLE_DEVICES=%s", fake_slurm_env("ROCR_VISIBLE_DEVICES"));
}

static void test_gpus(void)
{
    char dir[TEMP_PATH], file[256];

    if (!mkdtemp(temp_path(dir, "spank")))
        return;
    chmod(dir, 0755);
    write_cache(dir, 0);
    snprintf(fake_step_cache, sizeof(fake_step_cache), "cache=%s", dir);
    gpu_step("0,1", "nvlink,nccl,ucx,");
    start_task(1);
    ok(strcmp(fake_slurm_env("PLAIT_GPU_BUSID"), "0000:06:00.0") == 0 &&
           !slurm.said[0],
       "the cache's GPU: %s%s", fake_slurm_env("PLAIT_GPU_BUSID"), slurm.said);
    ok(strcmp(fake_slurm_env("PLAIT_NICS"), "mlx5_0") == 0 &&
           strcmp(fake_slurm_env("NCCL_IB_HCA"), "=mlx5_0") == 0 &&
           strcmp(fake_slurm_env("UCX_NET_DEVICES"), "mlx5_0:1") == 0,
       "its NIC, in NCCL's and UCX's words: %s", fake_slurm_env("PLAIT_NICS"));
    gpu_step("0,1", "nccl,");
    spank_setenv(NULL, "NCCL_IB_HCA", "mine", 1);
    start_task(1);
    ok(strcmp(fake_slurm_env("NCCL_IB_HCA"), "mine") == 0 &&
           strcmp(fake_slurm_env("UCX_NET_DEVICES"), "(unset)") == 0,
       "the user's own stays, and nothing unasked for is set");
    gpu_step("0,2", "nvlink,");
    refuses("tp beyond NVLink");
    gpu_step("0,2", "");
    start_task(0);
    ok(strcmp(fake_slurm_env("PLAIT_GPU"), "0") == 0, "unless that is allowed");
    test_amd(dir);
    snprintf(file, sizeof(file), "%s/node.xml", dir);
    if (truncate(file, 100) == 0) {
        gpu_step("", "");
        start_task(0);
        ok(strstr(slurm.said, "is damaged; discovering the topology anew") &&
               strcmp(fake_slurm_env("RANK"), "2") == 0,
           "a damaged cache is told and done without: %s", slurm.said);
    }
    unlink(file);
    snprintf(file, sizeof(file), "%s/node.lock", dir);
    unlink(file);
    rmdir(dir);
    strcpy(fake_step_cache, "cache=none");
}

static void test_slurmd(void)
{
    static char cache[] = "cache=/nonexistent/plait", bogus[] = "tpp=4";
    char *argv[] = {cache, bogus};

    fake_slurm_reset(S_CTX_SLURMD);
    ok(slurm_spank_init(NULL, 2, argv) == 0 &&
           strstr(slurm.said, "plugstack.conf: 'tpp=4' is not an") &&
           strstr(slurm.said, "/nonexistent/plait: No such file") &&
           slurm.noptions == 0,
       "slurmd's log has it all, and slurmd starts");
    fake_slurm_reset(S_CTX_LOCAL);
    ok(slurm_spank_init(NULL, 2, argv) == 0 && !slurm.said[0],
       "users are not bothered");
}

int main(void)
{
    unsetenv("MASTER_PORT");
    unsetenv("PLAIT_RANK");
    unsetenv("SLURM_HET_SIZE");
    unsetenv("SLURM_STEP_RESV_PORTS");
    test_task();
    test_untouched();
    test_wrong_steps();
    test_preflight_step();
    test_contained();
    test_port_held();
    test_gpus();
    test_slurmd();
    fake_step_load(S_CTX_ERROR);
    return done_testing();
}
