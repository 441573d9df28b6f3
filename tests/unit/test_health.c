/* SPDX-License-Identifier: Apache-2.0 */
/* What plait_health_look() finds wrong with GPUs and NICs: in a made-up NVML,
 * in a made-up sysfs and in a made-up kernel log. */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tap.h"
#include "topology/base/clock.h"
#include "topology/node/domain.h"
#include "topology/node/health.h"

static char root[128];
static const char *const gpus[] = {"0000:06:00.0"};
static const char *const nics[] = {"mlx5_0", "eth0"};

static void run(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void run(const char *format, ...)
{
    char command[512];
    va_list args;

    va_start(args, format);
    vsnprintf(command, sizeof(command), format, args);
    va_end(args);
    if (system(command) != 0)
        diag("this failed: %s", command);
}

/* A file below the root, and the folders above it. */
static void put(const char *path, const char *text)
{
    char whole[256];
    FILE *file;

    snprintf(whole, sizeof(whole), "%s/%s", root, path);
    for (char *at = whole + strlen(root) + 1; (at = strchr(at, '/')); at++) {
        *at = '\0';
        mkdir(whole, 0755);
        *at = '/';
    }
    file = fopen(whole, "w");
    if (file) {
        fprintf(file, "%s\n", text);
        fclose(file);
    }
}

/* All findings in one line, each after its kind: "bad: ...; note: ...". */
static const char *look(const struct plait_health_of *of)
{
    static const char *const kinds[] = {"note", "busy", "bad"};
    static char text[4096];
    struct plait_text out = {text, sizeof(text), 0};
    struct plait_health health = {0};

    text[0] = '\0';
    plait_health_look(of, 5, &health);
    for (int i = 0; i < health.n; i++)
        plait_text_add(&out, "%s%s: %s", i ? "; " : "",
                       kinds[health.found[i].kind], health.found[i].text);
    return text;
}

/* ---- NVML ---- */

static const struct {
    const char *sick, *said;
} illnesses[] = {
    {"none", ""},
    {"ecc", "bad: GPU 0000:06:00.0: 7 uncorrected memory errors since its "
            "driver was loaded"},
    {"corrected", "note: GPU 0000:06:00.0: 7 corrected memory errors since its "
                  "driver was loaded"},
    {"row", "bad: GPU 0000:06:00.0: a broken row of memory is replaced at the "
            "next reset"},
    {"rowless", "bad: GPU 0000:06:00.0: a broken row of memory could not be "
                "replaced"},
    {"page", "bad: GPU 0000:06:00.0: broken pages of memory are retired at the "
             "next reset"},
    {"pcie", "bad: GPU 0000:06:00.0: PCIe runs at the speed of generation 3, "
             "not 5"},
    {"pcie,idle", ""},
    {"links", "bad: GPU 0000:06:00.0: 3 of 4 NVLinks are up"},
    {"speed", "bad: GPU 0000:06:00.0: an NVLink runs at 20000 of 26562 MB/s"},
    {"hot", "bad: GPU 0000:06:00.0: the hardware slows it down, as it is too "
            "hot: 705 of 1980 MHz"},
    {"clock", "bad: GPU 0000:06:00.0: its clock is set to 1200 MHz, that of "
              "others to 1980"},
    {"small", "bad: GPU 0000:06:00.0: it has 40.0 GiB of memory, others 80.0"},
    {"used", "busy: GPU 0000:06:00.0: 20.0 of 80.0 GiB of its memory are in "
             "use"},
    {"links,mig", ""},
    {"unlinked", ""}, /* two GPUs do not tell whether there is a bridge */
    {"used,mig", ""}, /* by the jobs on its other instances */
    {"lost", "bad: GPU 0000:06:00.0: it does not answer on PCIe any more"},
    {"reset", "bad: GPU 0000:06:00.0: it has to be reset"},
};

static void check_nvml(void)
{
    const char *build = getenv("top_builddir"), *said;
    char library[512];
    struct plait_health_of of = {
        .root = root, .nvml = library, .gpus = gpus, .ngpus = 1};
    struct plait_health health = {0};
    double begin;

    snprintf(library, sizeof(library), "%s/tests/unit/.libs/fake_nvml.so",
             build ? build : ".");
    if (access(library, R_OK) < 0) {
        skip("no shared libraries here");
        return;
    }
    for (size_t i = 0; i < sizeof(illnesses) / sizeof(illnesses[0]); i++) {
        setenv("FAKE_NVML_SICK", illnesses[i].sick, 1);
        said = look(&of);
        ok(strcmp(said, illnesses[i].said) == 0, "%s: %s", illnesses[i].sick,
           said);
    }
    setenv("FAKE_NVML", "broken", 1);
    setenv("FAKE_NVML_SICK", "ecc", 1);
    said = look(&of);
    ok(!*said, "an NVML that does not start says nothing: %s", said);
    unsetenv("FAKE_NVML");
    setenv("FAKE_NVML_SICK", "hang", 1);
    begin = plait_clock_now();
    plait_health_look(&of, 1, &health);
    ok(health.n == 1 && health.found[0].kind == PLAIT_HEALTH_BAD &&
           strstr(health.found[0].text, "have not answered for 1 s") &&
           plait_clock_now() - begin < 4,
       "a driver that hangs is a fault: %s", health.found[0].text);
    unsetenv("FAKE_NVML_SICK");
    of.nvml = "/nowhere.so";
    said = look(&of);
    ok(!*said, "without an NVML there is nothing to say: %s", said);
}

/* ---- sysfs ---- */

/* A GPU below a slot, as symbolic links have them. */
static void put_gpu(const char *vendor)
{
    put("sys/devices/pci0/slot/max_link_width", "16");
    put("sys/devices/pci0/slot/max_link_speed", "32.0 GT/s PCIe");
    put("sys/devices/pci0/slot/gpu/max_link_width", "16");
    put("sys/devices/pci0/slot/gpu/current_link_width", "16");
    put("sys/devices/pci0/slot/gpu/max_link_speed", "32.0 GT/s PCIe");
    put("sys/devices/pci0/slot/gpu/current_link_speed", "2.5 GT/s PCIe");
    put("sys/devices/pci0/slot/gpu/vendor", vendor);
    put("sys/bus/pci/devices/README", "");
    run("ln -sfn ../../../devices/pci0/slot/gpu "
        "%s/sys/bus/pci/devices/0000:06:00.0",
        root);
}

#define GPU "sys/devices/pci0/slot/gpu/"

static void check_gpus(void)
{
    struct plait_health_of of = {
        .root = root, .nvml = "/nowhere.so", .gpus = gpus, .ngpus = 1};
    const char *said;

    put_gpu("0x1002");
    put(GPU "ras/umc_err_count", "ue: 0\nce: 5");
    put(GPU "ras/gpu_vram_bad_pages", "0x027f5d43 : 0x00001000 : R");
    put(GPU "mem_info_vram_total", "68702699520");
    put(GPU "mem_info_vram_used", "21000000");
    said = look(&of);
    ok(!*said, "a sound AMD GPU, though its PCIe saves power: %s", said);
    put(GPU "current_link_width", "8");
    put(GPU "ras/umc_err_count", "ue: 2\nce: 5");
    put(GPU "ras/gpu_vram_bad_pages",
        "0x027f5d43 : 0x00001000 : R\n0x027f5d4b : 0x00001000 : P\n"
        "0x027f5d53 : 0x00001000 : P");
    put(GPU "mem_info_vram_used", "34351349760");
    said = look(&of);
    ok(strcmp(said,
              "bad: GPU 0000:06:00.0: 8 of 16 PCIe lanes; "
              "bad: GPU 0000:06:00.0: 2 uncorrected umc errors since its "
              "driver was loaded; "
              "bad: GPU 0000:06:00.0: 2 broken pages of memory are retired at "
              "the next reset; "
              "busy: GPU 0000:06:00.0: 32.0 of 64.0 GiB of its memory are in "
              "use") == 0,
       "a broken one: %s", said);
    put("sys/devices/pci0/slot/max_link_width", "8");
    said = look(&of);
    ok(!strstr(said, "lanes"), "a slot of 8 lanes has no more: %s", said);
    put(GPU "ras/gpu_vram_bad_pages", "0x027f5d43 : 0x00001000 : F");
    said = look(&of);
    ok(strstr(said, "1 broken pages of memory are in use") != NULL,
       "a page that could not be taken out of use: %s", said);
}

#define PORT "sys/class/infiniband/mlx5_0/ports/1/"

static void check_nics(void)
{
    struct plait_health_of of = {.root = root, .nics = nics, .nnics = 2};
    struct plait_health_counts before, now;
    struct plait_health health = {0};
    const char *said;

    put(PORT "state", "4: ACTIVE");
    put(PORT "phys_state", "5: LinkUp");
    put(PORT "rate", "400 Gb/sec (4X NDR)");
    put(PORT "counters/symbol_error", "12");
    put(PORT "counters/link_downed", "3");
    put("sys/class/infiniband/mlx5_0/device/max_link_width", "16");
    put("sys/class/infiniband/mlx5_0/max_link_width", "16");
    put("sys/class/infiniband/mlx5_0/max_link_speed", "32.0 GT/s PCIe");
    put("sys/class/infiniband/mlx5_0/device/current_link_width", "16");
    put("sys/class/infiniband/mlx5_0/device/max_link_speed", "32.0 GT/s PCIe");
    put("sys/class/infiniband/mlx5_0/device/current_link_speed",
        "32.0 GT/s PCIe");
    put("sys/class/net/eth0/operstate", "up");
    put("sys/class/net/eth0/speed", "25000");
    said = look(&of);
    ok(!*said, "sound NICs: %s", said);
    ok(plait_health_nic_rate(root, "mlx5_0") == 5e10 &&
           plait_health_nic_rate(root, "eth0") == 25e9 / 8 &&
           plait_health_nic_rate(root, "none") == 0,
       "their rates");
    plait_health_count(&of, &before);
    put(PORT "counters/symbol_error", "20");
    plait_health_count(&of, &now);
    plait_health_compare(&of, &before, &now, &health);
    ok(health.n == 0, "eight symbol errors are no fault");
    put(PORT "counters/symbol_error", "1012");
    put(PORT "counters/link_downed", "4");
    put("sys/class/net/eth0/statistics/rx_errors", "900");
    plait_health_count(&of, &now);
    plait_health_compare(&of, &before, &now, &health);
    ok(health.n == 3 &&
           strcmp(health.found[0].text,
                  "mlx5_0: 1000 symbol errors while it was measured") == 0 &&
           strcmp(health.found[1].text,
                  "mlx5_0: 1 losses of the link while it was measured") == 0 &&
           strcmp(health.found[2].text,
                  "eth0: 900 receive errors while it was measured") == 0,
       "a thousand are: %s", health.found[0].text);
    put(PORT "state", "1: DOWN");
    put(PORT "phys_state", "3: Disabled");
    put("sys/class/infiniband/mlx5_0/device/current_link_speed",
        "8.0 GT/s PCIe");
    put("sys/class/net/eth0/operstate", "down");
    said = look(&of);
    ok(strcmp(said, "bad: mlx5_0: its port is DOWN, Disabled; "
                    "bad: mlx5_0: PCIe runs at 8 of 32 GT/s; "
                    "bad: eth0: its link is down") == 0,
       "broken ones: %s", said);
}

/* ---- the kernel log ---- */

static void check_log(void)
{
    struct plait_health_of of = {
        .root = root, .nvml = "/nowhere.so", .gpus = gpus, .ngpus = 1};
    const char *said;

    run("rm -rf %s/sys", root);
    put("dev/kmsg",
        "6,1,7000000,-;NVRM: Xid (PCI:0000:06:00): 13, pid=7, Graphics "
        "Exception\n SUBSYSTEM=pci\n"
        "6,2,7000000,-;NVRM: Xid (PCI:0000:05:00): 79, GPU has fallen off\n"
        "6,3,7000000,-;NVRM: Xid (PCI:0000:06:00.0): 74, pid=8, NVLink: x\n"
        "6,4,8000000,-;NVRM: Xid (PCI:0000:06:00): 74, pid=8, NVLink: y\n"
        "3,5,8000000,-;tmpfs: Unknown parameter 'NVRM: Xid (PCI:0000:06:00): "
        "79, '\n"
        "30,6,8000000,-;NVRM: Xid (PCI:0000:06:00): 79, by a daemon");
    of.up = 8 + 23 * 3600;
    said = look(&of);
    ok(strcmp(said, "bad: GPU 0000:06:00.0: Xid 74, an error of an NVLink, 2 "
                    "in the last 24 hours") == 0,
       "Xids of this GPU that are not a program's fault: %s", said);
    of.up = 8 + 25 * 3600;
    said = look(&of);
    ok(!*said, "not those of the day before: %s", said);
}

/* In a process that finds the made-up NVML as a program finds the driver's. */
static int ask_domain(const char *want)
{
    struct plait_domain domain;
    int rc = plait_domain_ask(1, &domain);

    if (strcmp(want, "hang") == 0)
        return rc < 0 && errno == ETIMEDOUT ? 0 : 1;
    return rc == 0 && domain.state == PLAIT_DOMAIN_READY &&
                   strcmp(domain.name, "abababababababababababababababab.7") ==
                       0
               ? 0
               : 1;
}

static void check_domain(void)
{
    static const char *const states[] = {"ready", "hang"};
    const char *build = getenv("top_builddir");
    char command[512], self[256];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

    self[n < 0 ? 0 : n] = '\0';
    run("mkdir %s/lib", root);
    snprintf(command, sizeof(command),
             "cd %s && test -r \"$PWD\"/tests/unit/.libs/fake_nvml.so && "
             "ln -s \"$PWD\"/tests/unit/.libs/fake_nvml.so "
             "%s/lib/libnvidia-ml.so.1",
             build ? build : ".", root);
    if (system(command) != 0)
        return skip("no shared libraries here");
    for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++) {
        double begin = plait_clock_now();

        snprintf(command, sizeof(command),
                 "LD_LIBRARY_PATH=%s/lib FAKE_NVML=switch FAKE_NVML_DOMAIN=%s "
                 "%s %s",
                 root, states[i], self, states[i]);
        ok(system(command) == 0 && plait_clock_now() - begin < 30,
           "the NVLink domain of an NVML that is %s", states[i]);
    }
}

int main(int argc, char **argv)
{
    const char *folder = getenv("TMPDIR");

    if (argc > 1)
        return ask_domain(argv[1]);
    snprintf(root, sizeof(root), "%s/plait-health-XXXXXX",
             folder ? folder : "/tmp");
    if (!mkdtemp(root))
        return skip_all("no folder for files");
    check_nvml();
    check_gpus();
    check_nics();
    check_log();
    check_domain();
    run("rm -rf %s", root);
    return done_testing();
}
