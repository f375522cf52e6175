// SPDX-License-Identifier: GPL-2.0
/*
 * cloche_xenpv - the virtio devices of a Xen-PV guest of cloche-vmm.
 *
 * Such a guest has neither ACPI nor a device tree to find them by.  Device n is where every guest
 * of cloche-vmm has it (vmm/vm.h), and interrupts by event channel PORT + n (vmm/shim/layout.h).
 * Anywhere else the module declines with ENODEV.  It is a work of its own, for the kernel, under
 * the kernel's licence.
 *
 * An interrupt of virtio-mmio is two ways out of the guest, to read its status and to acknowledge
 * it.  A device whose configuration never changes has one thing to say, that buffers were used, and
 * its event channel has said that: on_event() looks at the queues at once, and the driver's own
 * handler hangs on a line on which nothing comes.
 */
#include <linux/interrupt.h>
#include <linux/io.h>
#include <linux/irq.h>
#include <linux/module.h>
#include <linux/platform_device.h>
#include <linux/slab.h>
#include <linux/virtio.h>
#include <linux/virtio_ring.h>
#include <uapi/linux/virtio_ids.h>
#include <uapi/linux/virtio_mmio.h>
#include <xen/events.h>
#include <xen/xen.h>

enum { DEVICES_AT = 0xd0000000, STEP = 0x1000, DEVICES = 8, PORT = 48 };
enum { MAGIC = 0x74726976 }; /* "virt" */

struct line {
    struct platform_device *pdev;
    int idle_irq; /* the driver's */
};

/* virtio-mmio's own data begin with the device; whether they do is seen by its parent. */
static struct virtio_device *device_of(const struct line *line)
{
    struct virtio_device *vdev = platform_get_drvdata(line->pdev);

    return vdev && vdev->dev.parent == &line->pdev->dev ? vdev : NULL;
}

static irqreturn_t on_event(int irq, void *arg)
{
    const struct line *line = arg;
    struct virtio_device *vdev = device_of(line);
    struct virtqueue *vq;

    if (vdev)
        list_for_each_entry(vq, &vdev->vqs, list) vring_interrupt(irq, vq);
    else
        generic_handle_irq(line->idle_irq);
    return IRQ_HANDLED;
}

static int idle_irq(void)
{
    int irq = irq_alloc_desc(NUMA_NO_NODE);

    if (irq >= 0) {
        irq_set_chip_and_handler(irq, &dummy_irq_chip, handle_simple_irq);
        irq_clear_status_flags(irq, IRQ_NOREQUEST);
    }
    return irq;
}

static int register_device(struct platform_device *pdev, phys_addr_t at, int irq)
{
    const struct resource resources[] = {
        DEFINE_RES_MEM(at, STEP),
        DEFINE_RES_IRQ(irq),
    };
    int rc = platform_device_add_resources(pdev, resources, ARRAY_SIZE(resources));

    return rc ? rc : platform_device_add(pdev);
}

/* Interrupts come as soon as the device is registered. */
static int add_without_status(struct platform_device *pdev, phys_addr_t at, int irq)
{
    struct line *line = kzalloc(sizeof(*line), GFP_KERNEL);
    int rc;

    if (!line)
        return -ENOMEM;
    line->pdev = pdev;
    line->idle_irq = idle_irq();
    if (line->idle_irq < 0)
        return line->idle_irq;
    rc = request_irq(irq, on_event, 0, "cloche_xenpv", line);
    return rc ? rc : register_device(pdev, at, line->idle_irq);
}

static int add(unsigned int n, phys_addr_t at, u32 id)
{
    struct platform_device *pdev = platform_device_alloc("virtio-mmio", n);
    int irq = bind_evtchn_to_irq(PORT + n);

    if (!pdev)
        return -ENOMEM;
    if (irq < 0)
        return irq;
    if (id == VIRTIO_ID_BLOCK || id == VIRTIO_ID_RNG || id == VIRTIO_ID_VSOCK)
        return add_without_status(pdev, at, irq);
    return register_device(pdev, at, irq);
}

/* 0 = no device. */
static u32 id_at(phys_addr_t at)
{
    void __iomem *regs = ioremap(at, STEP);
    u32 id = 0;

    if (!regs)
        return 0;
    if (readl(regs + VIRTIO_MMIO_MAGIC_VALUE) == MAGIC)
        id = readl(regs + VIRTIO_MMIO_DEVICE_ID);
    iounmap(regs);
    return id;
}

/* There is no way out: the devices stay as long as the guest. */
static int __init cloche_xenpv_init(void)
{
    if (!xen_pv_domain())
        return -ENODEV;
    for (unsigned int n = 0; n < DEVICES; n++) {
        phys_addr_t at = DEVICES_AT + (phys_addr_t)n * STEP;
        u32 id = id_at(at);
        int rc = id ? add(n, at, id) : 0;

        if (rc < 0)
            pr_err("cloche_xenpv: device %u: %d\n", n, rc);
    }
    return 0;
}
module_init(cloche_xenpv_init);

MODULE_DESCRIPTION("virtio devices of a Xen-PV guest of cloche-vmm");
MODULE_LICENSE("GPL");
