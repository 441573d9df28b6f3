/* SPDX-License-Identifier: Apache-2.0 */
/* What a preflight makes of broken devices, and to whom it hands that on. */
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "preflight_files.h"
#include "tap.h"
#include "topology/base/clock.h"
#include "topology/start/port.h"
#include "topology/start/preflight.h"

enum { RANKS = 6, NODES = 3 };

static const struct plait_preflight_bound none;

/* Two ranks a node, all alike. */
static void fill(struct plait_preflight_report *reports)
{
    memset(reports, 0, RANKS * sizeof(*reports));
    for (int i = 0; i < RANKS; i++) {
        struct plait_preflight_report *r = &reports[i];

        snprintf(r->node, sizeof(r->node), "n%d", i / 2);
        r->node_rank = i / 2;
        r->product = 2e9;
        r->memory = 4e9;
        r->nic = 5e10;
        r->nedges = 1;
        r->edge[0] = (struct plait_preflight_edge){(i + 2) % RANKS, 1e8};
    }
}

static void check_judge(void)
{
    struct plait_preflight_report r[RANKS];
    struct plait_preflight_node nodes[RANKS];
    char text[1024];

    fill(r);
    strcpy(r[2].faults, "GPU 0000:06:00.0: it has to be reset");
    strcpy(r[3].faults, "GPU 0000:06:00.0: it has to be reset");
    ok(plait_preflight_judge_nodes(r, RANKS, &none, nodes) == NODES &&
           plait_preflight_list(nodes, NODES, text, sizeof(text)) == 1 &&
           strcmp(text, "n1: GPU 0000:06:00.0: it has to be reset") == 0,
       "a fault that two ranks see is one: %s", text);
    ok(!nodes[1].slow, "... and no busy moment");
    strcpy(r[3].faults, "mlx5_0: its port is DOWN, Polling");
    r[3].nic = 2.5e10;
    plait_preflight_judge_nodes(r, RANKS, &none, nodes);
    plait_preflight_list(nodes, NODES, text, sizeof(text));
    ok(strcmp(text, "n1: GPU 0000:06:00.0: it has to be reset, mlx5_0: its "
                    "port is DOWN, Polling, its NIC is at 0.50 of the median "
                    "(200 of 400 Gb/s)") == 0,
       "two faults, and a NIC slower than those of other nodes: %s", text);
    fill(r);
    for (int i = 0; i < RANKS; i++)
        r[i].nic = i == 4 ? 5e10 : 0;
    ok(plait_preflight_judge(r, RANKS, &none, text, sizeof(text)) == 0,
       "NICs of unknown rate are not compared: %s", text);
}

static int hand_on(const char *report, const char *hook, int bad,
                   struct plait_error *err)
{
    struct plait_launch launch = {.jobid = "71.2"};
    struct plait_preflight preflight = {
        .launch = &launch, .report = report, .hook = hook};
    struct plait_preflight_report r[RANKS];
    struct plait_preflight_node nodes[RANKS];
    int n;

    fill(r);
    strcpy(r[0].node, "a\"b");
    strcpy(r[1].node, "a\"b");
    if (bad)
        strcpy(r[2].faults, "GPU 0000:06:00.0: it has to be reset");
    n = plait_preflight_judge_nodes(r, RANKS, &none, nodes);
    err->text[0] = '\0';
    return plait_preflight_hand_on(&preflight, nodes, n, err);
}

static void check_report(void)
{
    struct plait_error err;
    char path[128];
    const char *text;

    snprintf(path, sizeof(path), "%s/report", folder);
    ok(hand_on(path, NULL, 1, &err) == 0, "a report is written");
    text = read_file("report");
    ok(strcmp(text,
              "{\"job\": \"71.2\", \"bad\": [\"n1\"],\n  \"nodes\": [\n"
              "    {\"node\": \"a\\\"b\", \"good\": true, \"gflops\": 2, "
              "\"memory_gbs\": 4, \"sends_mbs\": 100, \"receives_mbs\": 100, "
              "\"nic_gbits\": 400, \"others\": 0, \"faults\": \"\", "
              "\"why\": \"\"},\n"
              "    {\"node\": \"n1\", \"good\": false, \"gflops\": 2, "
              "\"memory_gbs\": 4, \"sends_mbs\": 100, \"receives_mbs\": 100, "
              "\"nic_gbits\": 400, \"others\": 0, \"faults\": \"GPU "
              "0000:06:00.0: it has to be reset\", \"why\": \"GPU "
              "0000:06:00.0: it has to be reset\"},\n"
              "    {\"node\": \"n2\", \"good\": true, \"gflops\": 2, "
              "\"memory_gbs\": 4, \"sends_mbs\": 100, \"receives_mbs\": 100, "
              "\"nic_gbits\": 400, \"others\": 0, \"faults\": \"\", "
              "\"why\": \"\"}]}\n") == 0,
       "... with all nodes: %s", text);
    ok(hand_on(path, NULL, 0, &err) == 0 &&
           strstr(read_file("report"), "\"bad\": []"),
       "... also where all are good");
    ok(hand_on("/nowhere/report", NULL, 0, &err) < 0 &&
           strcmp(err.text, "cannot write the report /nowhere/report: No such "
                            "file or directory") == 0,
       "one that cannot be written: %s", err.text);
}

static void check_hook(void)
{
    struct plait_error err;
    char hook[128];
    double begin;

    setenv("SECRET_OF_SLURMD", "1", 1);
    put_program("hook", "cat >hooked; env | sort >env; pwd >>env", hook);
    ok(hand_on(NULL, hook, 1, &err) == 0 &&
           strstr(read_file("hooked"), "\"bad\": [\"n1\"]"),
       "the site's program gets the report: %s", err.text);
    ok(strstr(read_file("env"), "SLURM_JOB_ID=71\n") &&
           !strstr(read_file("env"), "SECRET"),
       "... and nothing of this process's environment: %s", read_file("env"));
    unlink(strcat(strcpy(hook, folder), "/hooked"));
    snprintf(hook, sizeof(hook), "%s/hook", folder);
    ok(hand_on(NULL, hook, 0, &err) == 0 && !*read_file("hooked"),
       "where all nodes are good it is not started");
    signal(SIGCHLD, SIG_IGN);
    ok(hand_on(NULL, hook, 1, &err) == 0, "an ignored SIGCHLD is no matter: %s",
       err.text);
    signal(SIGCHLD, SIG_DFL);
    put_program("fails", "exit 3", hook);
    ok(hand_on(NULL, hook, 1, &err) < 0 &&
           strstr(err.text, "/fails ended with status 3"),
       "one that fails: %s", err.text);
    put_program("hangs", "sleep 60 & sleep 60", hook);
    begin = plait_clock_now();
    ok(hand_on(NULL, hook, 1, &err) < 0 &&
           strstr(err.text, "/hangs has not ended in 1 s") &&
           plait_clock_now() - begin < 5,
       "one that hangs is killed: %s", err.text);
    ok(hand_on(NULL, "/nowhere/hook", 1, &err) < 0 &&
           strstr(err.text, "/nowhere/hook ended with status 127"),
       "one that is not there: %s", err.text);
}

/* Whether none of the processes whose ids the hook wrote is left. */
static bool have_ended(void)
{
    int ids[2] = {0, 0};

    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
    return sscanf(read_file("ids"), "%d %d", &ids[0], &ids[1]) == 2 &&
           kill(ids[0], 0) < 0 && kill(ids[1], 0) < 0;
}

/* Where Slurm ends a step by its tasks alone. */
static void check_cancelled(void)
{
    const struct timespec pause = {.tv_nsec = 20000000};
    double begin = plait_clock_now();
    struct plait_error err;
    char hook[128];
    bool ended = false;
    pid_t pid;

    prctl(PR_SET_CHILD_SUBREAPER, 1);
    put_program("stays", "sleep 60 & echo $$ $! >ids.new; mv ids.new ids; wait",
                hook);
    pid = fork();
    if (pid == 0) {
        plait_preflight_hook_seconds = 60;
        hand_on(NULL, hook, 1, &err);
        _exit(0);
    }
    while (!*read_file("ids") && plait_clock_now() - begin < 30)
        nanosleep(&pause, NULL);
    ok(*read_file("ids") && !have_ended(), "a program of the site's runs");
    kill(pid, SIGKILL);
    while (!(ended = have_ended()) && plait_clock_now() - begin < 50)
        nanosleep(&pause, NULL);
    ok(ended, "... and ends with its task, and what it has started with it");
    prctl(PR_SET_CHILD_SUBREAPER, 0);
}

/* ---- a whole preflight, of two tasks with a GPU each ---- */

static void say(void *arg, const char *text)
{
    (void)arg;
    printf("%s\n", text);
    fflush(stdout);
}

static int fly(int rank, int port, const char *report)
{
    struct plait_launch launch = {
        .rank = rank, .world_size = 2, .nnodes = 1, .master_port = port};
    struct plait_preflight p = {.launch = &launch,
                                .node = "here",
                                .token = "0123456789abcdef0123456789abcdef",
                                .say = say,
                                .report = report};

    plait_layout_init(&launch.layout);
    launch.layout.size[PLAIT_TP] = 2;
    strcpy(launch.master_addr, "127.0.0.1");
    strcpy(launch.gpu_busid, rank ? "0000:06:00.0" : "0000:05:00.0");
    return plait_preflight_run(&p);
}

/* In a process that was started with the made-up NVML on LD_LIBRARY_PATH. */
static int fly_both(const char *report)
{
    int port = 26003 + (int)getpid() % 1000, hold, status;
    pid_t pid;

    hold = plait_master_port_take(&port);
    pid = fork();
    if (pid == 0)
        _exit(fly(1, port, report) != 0);
    status = fly(0, port, report);
    waitpid(pid, NULL, 0);
    close(hold);
    return status;
}

/* Its status and first line. */
static int fly_sick(const char *self, const char *to, char *line, int size)
{
    char command[1024], rest[1024];
    FILE *out;

    snprintf(command, sizeof(command),
             "FAKE_NVML_SICK=ecc LD_LIBRARY_PATH=%s:$LD_LIBRARY_PATH %s "
             "%s/flown",
             folder, self, to);
    out = popen(command, "r");
    if (!out || !fgets(line, size, out))
        line[0] = '\0';
    while (out && fgets(rest, sizeof(rest), out))
        ;
    return out ? pclose(out) : -1;
}

/* Other processes on this machine may be named too. */
static void check_flight(const char *self)
{
    const char *build = getenv("top_builddir");
    char command[1024], line[1024];
    int status;

    snprintf(command, sizeof(command), "%s/tests/unit/.libs/fake_nvml.so",
             build ? build : ".");
    if (access(command, R_OK) < 0) {
        skip("no shared libraries here");
        return;
    }
    snprintf(command, sizeof(command),
             "ln -s %s/tests/unit/.libs/fake_nvml.so %s/libnvidia-ml.so.1",
             build ? build : ".", folder);
    if (system(command) != 0)
        diag("this failed: %s", command);
    status = fly_sick(self, folder, line, sizeof(line));
    ok(WIFEXITED(status) && WEXITSTATUS(status) == PLAIT_PREFLIGHT_EXIT &&
           strstr(line, "preflight: here: GPU 0000:06:00.0: 7 uncorrected "
                        "memory errors since its driver was loaded"),
       "a task whose GPU has errors stops the step: %s", line);
    ok(strstr(read_file("flown"), "\"bad\": [\"here\"]") != NULL,
       "... and is in the report");
    status = fly_sick(self, "/nowhere", line, sizeof(line));
    ok(WEXITSTATUS(status) == PLAIT_PREFLIGHT_EXIT &&
           strcmp(line, "warning: preflight: cannot write the report "
                        "/nowhere/flown: No such file or directory\n") == 0,
       "a report that cannot be written is no verdict on nodes: %s", line);
}

static void check_site(void)
{
    static const char good[] = "preflight: {hook: /sbin/x}",
                      wrong[] = "preflight: {hook: x}";
    struct plait_error err;
    struct plait_site *site =
        plait_site_parse("s", good, sizeof(good) - 1, &err);

    ok(site && strcmp(site->preflight.hook, "/sbin/x") == 0, "a site's hook");
    plait_site_destroy(site);
    ok(!plait_site_parse("s", wrong, sizeof(wrong) - 1, &err) &&
           strcmp(err.text, "preflight.hook: \"x\": must be the absolute path "
                            "of a program") == 0,
       "one without a folder: %s", err.text);
}

int main(int argc, char **argv)
{
    char command[128];

    if (argc > 1)
        return fly_both(argv[1]);
    snprintf(folder, sizeof(folder), "%s/plait-report-XXXXXX",
             getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    if (!mkdtemp(folder))
        return skip_all("no folder for files");
    check_judge();
    check_report();
    plait_preflight_hook_seconds = 1;
    check_hook();
    check_cancelled();
    check_flight(argv[0]);
    check_site();
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    if (system(command) != 0)
        diag("%s stays", folder);
    return done_testing();
}
