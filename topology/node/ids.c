/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/node/build.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* What PCI class, vendor and device ids say about a device. Numbers from the
 * PCI code and id assignment specification and pci.ids. */

#define CLASS_ETHERNET 0x0200
#define CLASS_INFINIBAND 0x0207
#define CLASS_FABRIC 0x0208
#define CLASS_VGA 0x0300
#define CLASS_3D 0x0302
#define CLASS_DISPLAY 0x0380
#define CLASS_IB_OLD 0x0c06
#define CLASS_ACCELERATOR 0x1200

#define VENDOR_AMD 0x1002
#define VENDOR_NVIDIA 0x10de
#define VENDOR_CRAY 0x17db
#define VENDOR_HPE 0x1590
#define VENDOR_AMAZON 0x1d0f
#define VENDOR_INTEL 0x8086

/* Server boards still carry ATI's 2-D chips (ES1000, Rage), and AMD's
 * processors have graphics of their own: only GCN, CDNA and RDNA boards
 * count. Fiji and Vega 20 lie in these ranges as well as MI100 to MI355X. */
static bool is_amd_board(unsigned device)
{
    return (device >= 0x6600 && device <= 0x69ff) ||
           (device >= 0x7300 && device <= 0x7fff);
}

const char *node_gpu_vendor(unsigned class_id, unsigned vendor, unsigned device)
{
    int graphics = class_id == CLASS_VGA || class_id == CLASS_3D ||
                   class_id == CLASS_DISPLAY;

    if (vendor == VENDOR_NVIDIA && graphics)
        return "nvidia";
    if (vendor == VENDOR_AMD && (graphics || class_id == CLASS_ACCELERATOR) &&
        is_amd_board(device))
        return "amd";
    /* The graphics inside a processor are VGA, the data-centre boards not. */
    if (vendor == VENDOR_INTEL && class_id == CLASS_DISPLAY)
        return "intel";
    if (vendor == 0 && class_id == CLASS_3D)
        return "";
    return NULL;
}

/* Cassini 1 and 2 */
bool node_is_slingshot(unsigned vendor, unsigned device)
{
    return (vendor == VENDOR_CRAY && device == 0x0501) ||
           (vendor == VENDOR_HPE && device == 0x0371);
}

static bool is_efa(unsigned vendor, unsigned device)
{
    return vendor == VENDOR_AMAZON && (device & 0xfff0) == 0xefa0;
}

bool node_is_fabric_nic(unsigned class_id, unsigned vendor, unsigned device)
{
    if (class_id == CLASS_INFINIBAND || class_id == CLASS_FABRIC ||
        class_id == CLASS_IB_OLD)
        return true;
    return class_id == CLASS_ETHERNET &&
           (is_efa(vendor, device) || node_is_slingshot(vendor, device));
}

/* By what the drivers and rdma-core's rules for names call their devices. EFA's
 * are RDMA devices, but of no use to NCCL without its plugin, which looks for
 * them itself, or to UCX. */
enum plait_nic_kind node_nic_kind(const char *name, unsigned vendor)
{
    static const char *const verbs[] = {
        "mlx",   "ibp",  "ibs",     "ibo",  "ibw",  "roce",  "irdma", "iwp",
        "hfi1_", "opap", "bnxt_re", "qedr", "hns_", "erdma", "cxgb",  "ionic"};

    if (strncmp(name, "cxi", 3) == 0)
        return PLAIT_NIC_SLINGSHOT;
    if (vendor == VENDOR_AMAZON)
        return PLAIT_NIC_OTHER;
    for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
        if (strncmp(name, verbs[i], strlen(verbs[i])) == 0)
            return PLAIT_NIC_VERBS;
    return PLAIT_NIC_OTHER;
}

/* NVLink 1 (P100), 2 to 4 (V100, A100, H100), 5 (B200); GA10x has narrow
 * links. From the data sheets. */
double node_nvlink_gbps(int sm)
{
    if (sm > 0 && sm < 70)
        return 20;
    if (sm == 86)
        return 14.0625;
    return sm >= 100 ? 50 : 25;
}

static const struct {
    unsigned vendor, device;
    const char *name;
} models[] = {
    {VENDOR_NVIDIA, 0x15f8, "Tesla P100-PCIE-16GB"},
    {VENDOR_NVIDIA, 0x15f9, "Tesla P100-SXM2-16GB"},
    {VENDOR_NVIDIA, 0x1db1, "Tesla V100-SXM2-16GB"},
    {VENDOR_NVIDIA, 0x1db4, "Tesla V100-PCIE-16GB"},
    {VENDOR_NVIDIA, 0x1db5, "Tesla V100-SXM2-32GB"},
    {VENDOR_NVIDIA, 0x1db6, "Tesla V100-PCIE-32GB"},
    {VENDOR_NVIDIA, 0x1db8, "Tesla V100-SXM3-32GB"},
    {VENDOR_NVIDIA, 0x1eb8, "Tesla T4"},
    {VENDOR_NVIDIA, 0x20b0, "A100-SXM4-40GB"},
    {VENDOR_NVIDIA, 0x20b1, "A100-PCIE-40GB"},
    {VENDOR_NVIDIA, 0x20b2, "A100-SXM4-80GB"},
    {VENDOR_NVIDIA, 0x20b3, "A100-SXM-64GB"},
    {VENDOR_NVIDIA, 0x20b5, "A100 80GB PCIe"},
    {VENDOR_NVIDIA, 0x20b7, "A30"},
    {VENDOR_NVIDIA, 0x20f1, "A100-PCIE-40GB"},
    {VENDOR_NVIDIA, 0x20f3, "A800-SXM4-80GB"},
    {VENDOR_NVIDIA, 0x2235, "A40"},
    {VENDOR_NVIDIA, 0x2236, "A10"},
    {VENDOR_NVIDIA, 0x2237, "A10G"},
    {VENDOR_NVIDIA, 0x2321, "H100 NVL"},
    {VENDOR_NVIDIA, 0x2322, "H800 PCIe"},
    {VENDOR_NVIDIA, 0x2324, "H800"},
    {VENDOR_NVIDIA, 0x2328, "H20B"},
    {VENDOR_NVIDIA, 0x2329, "H20"},
    {VENDOR_NVIDIA, 0x232c, "H20 HBM3e"},
    {VENDOR_NVIDIA, 0x2330, "H100 80GB HBM3"},
    {VENDOR_NVIDIA, 0x2331, "H100 PCIe"},
    {VENDOR_NVIDIA, 0x2335, "H200"},
    {VENDOR_NVIDIA, 0x2336, "H100"},
    {VENDOR_NVIDIA, 0x2337, "H100 64GB HBM2"},
    {VENDOR_NVIDIA, 0x2338, "H100 96GB HBM3"},
    {VENDOR_NVIDIA, 0x2339, "H100 94GB HBM2e"},
    {VENDOR_NVIDIA, 0x233b, "H200 NVL"},
    {VENDOR_NVIDIA, 0x2342, "GH200 120GB"},
    {VENDOR_NVIDIA, 0x2345, "GH200 480GB"},
    {VENDOR_NVIDIA, 0x2348, "GH200 144G HBM3e"},
    {VENDOR_NVIDIA, 0x26b5, "L40"},
    {VENDOR_NVIDIA, 0x26b7, "L20"},
    {VENDOR_NVIDIA, 0x26b9, "L40S"},
    {VENDOR_NVIDIA, 0x26ba, "L20"},
    {VENDOR_NVIDIA, 0x27b8, "L4"},
    {VENDOR_NVIDIA, 0x2901, "B200"},
    {VENDOR_NVIDIA, 0x2941, "GB200"},
    {VENDOR_NVIDIA, 0x2bb5, "RTX PRO 6000 Blackwell Server Edition"},
    {VENDOR_NVIDIA, 0x2e12, "GB10"},
    {VENDOR_NVIDIA, 0x3182, "B300 SXM6 AC"},
    {VENDOR_NVIDIA, 0x31a1, "GB300"},
    {VENDOR_NVIDIA, 0x31c2, "GB300"},
    {VENDOR_NVIDIA, 0x31c3, "GB300"},
    {VENDOR_AMD, 0x66a0, "Instinct MI60"},
    {VENDOR_AMD, 0x66a1, "Instinct MI50"},
    {VENDOR_AMD, 0x738c, "Instinct MI100"},
    {VENDOR_AMD, 0x7408, "Instinct MI250X"},
    {VENDOR_AMD, 0x740c, "Instinct MI250"},
    {VENDOR_AMD, 0x740f, "Instinct MI210"},
    {VENDOR_AMD, 0x74a0, "Instinct MI300A"},
    {VENDOR_AMD, 0x74a1, "Instinct MI300X"},
    {VENDOR_AMD, 0x74a2, "Instinct MI308X"},
    {VENDOR_AMD, 0x74a5, "Instinct MI325X"},
    {VENDOR_AMD, 0x74a9, "Instinct MI300X HF"},
    {VENDOR_AMD, 0x74b5, "Instinct MI300X"},
    {VENDOR_AMD, 0x74b9, "Instinct MI325X"},
    {VENDOR_AMD, 0x74bd, "Instinct MI300X HF"},
    {VENDOR_AMD, 0x75a0, "Instinct MI350X"},
    {VENDOR_AMD, 0x75a3, "Instinct MI355X"},
    {VENDOR_INTEL, 0x0b69, "Data Center GPU Max 1450"},
    {VENDOR_INTEL, 0x0bd4, "Data Center GPU Max 1550"},
    {VENDOR_INTEL, 0x0bd5, "Data Center GPU Max 1550"},
    {VENDOR_INTEL, 0x0bd6, "Data Center GPU Max 1550"},
    {VENDOR_INTEL, 0x0bd7, "Data Center GPU Max 1350"},
    {VENDOR_INTEL, 0x0bd8, "Data Center GPU Max 1350"},
    {VENDOR_INTEL, 0x0bd9, "Data Center GPU Max 1100"},
    {VENDOR_INTEL, 0x0bda, "Data Center GPU Max 1100"},
    {VENDOR_INTEL, 0x0bdb, "Data Center GPU Max 1100"},
    {VENDOR_INTEL, 0x56c0, "Data Center GPU Flex 170"},
    {VENDOR_INTEL, 0x56c1, "Data Center GPU Flex 140"},
};

/* Those of Ponte Vecchio that pci.ids says have two tiles. */
int node_gpu_tiles(unsigned vendor, unsigned device)
{
    bool has_two = device == 0x0b69 || device == 0x0bd0 ||
                   (device >= 0x0bd4 && device <= 0x0bd8);

    return vendor == VENDOR_INTEL && has_two ? 2 : 1;
}

const char *node_gpu_model(unsigned vendor, unsigned device)
{
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
        if (models[i].vendor == vendor && models[i].device == device)
            return models[i].name;
    }
    return "";
}

const char *plait_gpu_known_model(const struct plait_gpu *gpu)
{
    return node_gpu_model(gpu->vendor_id, gpu->device_id);
}

/* 46 for MI50 and MI100, 50 for MI200, 64 for MI300, 76.8 for MI350. */
double node_xgmi_gbps(int gcn)
{
    if (gcn >= 0x950)
        return 76.8;
    if (gcn >= 0x940)
        return 64;
    return gcn >= 0x90a ? 50 : 46;
}

/* RCCL writes gcn="908", gcn="910" (for gfx90a) or gcn="gfx942". */
int node_parse_gcn(const char *text)
{
    long value;

    if (!text)
        return 0;
    if (strncmp(text, "gfx", 3) == 0)
        text += 3;
    value = strtol(text, NULL, 16);
    return value == 0x910 ? 0x90a : (int)(value & 0xffff);
}
