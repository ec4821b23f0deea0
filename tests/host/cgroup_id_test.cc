#include "host/cgroup_id.h"

#include <gtest/gtest.h>
#include <sys/xattr.h>

#include "tests/support/fake_host.h"

namespace flash {
namespace {

const std::string kId = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const std::string kOther = "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210";
const std::string kUid = "5f8e2f3c-1b2a-4c3d-8e9f-0a1b2c3d4e5f";

struct ContainerCase {
  std::string path, runtime, pod_uid;
};

TEST(ContainerOf, KnowsEachRuntimesPaths) {
  const std::string slice =
      "/kubepods.slice/kubepods-burstable.slice/"
      "kubepods-burstable-pod5f8e2f3c_1b2a_4c3d_8e9f_0a1b2c3d4e5f.slice/";
  const ContainerCase cases[] = {
      {"/docker/" + kId, "docker", ""},
      {"/system.slice/docker-" + kId + ".scope", "docker", ""},
      {"/machine.slice/libpod-" + kId + ".scope", "podman", ""},
      {"/libpod_parent/libpod-" + kId, "podman", ""},
      {"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" + kId + ".scope", "podman", ""},
      {"/system.slice/nerdctl-" + kId + ".scope", "containerd", ""},
      {slice + "cri-containerd-" + kId + ".scope", "containerd", kUid},
      {slice + "crio-" + kId + ".scope", "crio", kUid},
      {slice + "docker-" + kId + ".scope", "docker", kUid},
      {"/kubepods/besteffort/pod" + kUid + "/" + kId, "containerd", kUid},
      {"/kubepods/pod" + kUid + "/crio-" + kId, "crio", kUid},
      {"/kubepods/burstable/pod0123456789abcdef0123456789abcdef/" + kId, "containerd",
       "0123456789abcdef0123456789abcdef"},
      {"/system.slice/kubepods-burstable-pod5f8e2f3c_1b2a_4c3d_8e9f_0a1b2c3d4e5f.slice:cri-containerd:" + kId,
       "containerd", kUid},
      {"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod5f8e2f3c_1b2a_4c3d_8e9f_0a1b2c3d4e5f.slice/"
       "cri-containerd-" +
           kId + ".scope",
       "containerd", kUid},
      // Whatever the kubelet's root, docker's parent or a unit is called.
      {"/pods.slice/pods-kubepods.slice/pods-kubepods-pod5f8e2f3c_1b2a_4c3d_8e9f_0a1b2c3d4e5f.slice/crio-" +
           kId + ".scope",
       "crio", kUid},
      {"/pods/pod" + kUid + "/" + kId, "containerd", kUid},
      {"/jobs.slice/docker-" + kId + ".scope", "docker", ""},
      {"/jobs/docker/" + kId, "docker", ""},
      {"/system.slice/web.service/libpod-payload-" + kId, "podman", ""},
      {"/jobs/libpod-" + kId, "podman", ""},
      {"/system.slice:docker:" + kId, "docker", ""},
      {"/jobs/system.slice:libpod:" + kId, "podman", ""},
      {"/docker/" + kOther + "/kubepods/pod" + kUid + "/" + kId, "containerd", kUid},
      // Engines that the path does not name, or that nobody knows.
      {"/" + kId, "unknown", ""},
      {"/ecs/0123456789abcdef0123456789abcdef/" + kId, "unknown", ""},
      {"/jobs/" + kId, "unknown", ""},
      {"/default/" + kId, "unknown", ""},
      {"/system.slice/" + kId + ".scope", "unknown", ""},
      {"/system.slice/newengine-" + kId + ".scope", "unknown", ""},
  };
  for (const auto& c : cases) {
    const auto container = container_of(c.path);
    EXPECT_EQ(container.runtime, c.runtime) << c.path;
    EXPECT_EQ(container.id, kId) << c.path;
    EXPECT_EQ(container.name, "0123456789ab") << c.path;
    EXPECT_EQ(container.pod_uid, c.pod_uid) << c.path;
  }
}

TEST(ContainerOf, KnowsLxcByName) {
  for (const std::string path : {"/lxc.payload.web", "/lxc/web", "/jobs.slice/lxc.payload.web"}) {
    const auto container = container_of(path);
    EXPECT_EQ(container.runtime, "lxc") << path;
    EXPECT_EQ(container.id, "web") << path;
    EXPECT_EQ(container.name, "web") << path;
  }
  EXPECT_EQ(container_of("/lxc/web/init.scope"), Container{});
}

TEST(ContainerOf, LeavesOtherCgroupsAlone) {
  for (const std::string& path : {std::string("/"),
                                  std::string(),
                                  std::string("/docker"),
                                  "/docker/" + kId + "/init.scope",
                                  "/docker/" + kId.substr(1),
                                  "/machine.slice/libpod-conmon-" + kId + ".scope",
                                  "/machine.slice/libpod-" + kId + ".scope/container",
                                  "/system.slice/docker-" + kId.substr(2) + "zz.scope",
                                  std::string("/system.slice/docker-.scope"),
                                  std::string("/system.slice/crio-"),
                                  "/kubepods/pod" + kUid,
                                  "/libpod_parent/" + kId,
                                  "/machine.slice/machine-libpod_pod_" + kId + ".slice",
                                  "/docker/x" + kId,
                                  "/crio-conmon-" + kId + ".scope",
                                  "/docker/0123456789ABCDEF" + kId.substr(16),
                                  "/system.slice/-" + kId,
                                  std::string("/lxc.payload."),
                                  std::string("/lxc.monitor.web"),
                                  std::string("/lxc"),
                                  "/system.slice/var-lib-docker-overlay2-" + kId + "-merged.mount"})
    EXPECT_EQ(container_of(path), Container{}) << path;
}

TEST(UnitOf, NamesTheUnitsOwnCgroupOnly) {
  EXPECT_EQ(unit_of("/system.slice/web.service"), "web.service");
  EXPECT_EQ(unit_of("/system.slice/system-getty.slice/getty@tty1.service"), "getty@tty1.service");
  EXPECT_EQ(unit_of("/system.slice/my\\x2dweb.service"), "my\\x2dweb.service");
  EXPECT_EQ(unit_of("/system.slice/_cgroup.service"), "cgroup.service");
  EXPECT_EQ(unit_of("/system.slice"), "system.slice");
  EXPECT_EQ(unit_of("/system.slice/web.service/worker"), "");
  EXPECT_EQ(unit_of("/web"), "");
  EXPECT_EQ(unit_of("/.service"), "");
}

TEST(SystemUnitPath, EndsAtTheFirstServiceOrScope) {
  EXPECT_EQ(system_unit_path("/system.slice/web.service/a/b.service"), "/system.slice/web.service");
  EXPECT_EQ(system_unit_path("/user.slice/user-0.slice/user@0.service/app.slice/x.service"),
            "/user.slice/user-0.slice/user@0.service");
  EXPECT_EQ(system_unit_path("/init.scope"), "/init.scope");
  EXPECT_EQ(system_unit_path("/system.slice"), "");
  EXPECT_EQ(system_unit_path("/made/by/hand.service"), "");
  EXPECT_EQ(system_unit_path("/"), "");
}

TEST(IsKubelets, WhateverItsCgroupRootIsCalled) {
  const std::string slices[] = {
      "/kubepods",
      "/kubepods.slice",
      "/kubepods/burstable",
      "/kubepods.slice/kubepods-besteffort.slice",
      "/kubelet/kubepods/burstable",
      "/kubelet.slice/kubelet-kubepods.slice",
      "/pods.slice/pods-kubepods.slice/pods-kubepods-burstable.slice",
      "/container.slice/container-kubepods.slice/x.scope",
      "/foo_bar.slice/foo_bar-kubepods.slice",
      "/a.slice/a-b.slice/a-b-kubepods.slice/a-b-kubepods-besteffort.slice",
      "/mykubepods/x",
      "/k3s/kubepods/besteffort",
      "/docker/" + kId + "/kubelet.slice/kubelet-kubepods.slice",
      "/system.slice/docker-" + kId + ".scope/kubelet/kubepods/besteffort/x",
      "/lxc.payload.node1/kubepods.slice",
      "/user.slice/user-1000.slice/user@1000.service/user.slice/k3s-rootless.service/evac/kubepods",
      "/system.slice/k3s.service/kubepods/burstable",
      // Without a folder for all pods, or for any (cgroups-per-qos off).
      "/pods/pod" + kUid,
      "/pods/pod" + kUid + "/" + kId,
      "/x.slice/x-pod5f8e2f3c_1b2a_4c3d_8e9f_0a1b2c3d4e5f.slice",
      "/system.slice/cri-containerd-" + kId + ".scope",
      "/system.slice/crio-" + kId + ".scope/container",
      "/crio-" + kId,
      "/system.slice:cri-containerd:" + kId,
      "/system.slice/x-pod5f8e2f3c_1b2a_4c3d_8e9f_0a1b2c3d4e5f.slice:anything:" + kId,
  };
  for (const auto& path : slices) EXPECT_TRUE(is_kubelets(path)) << path;
  for (const std::string path :
       {"/", "", "/system.slice/kubelet.service", "/system.slice/kubepods-exporter.service", "/podman",
        "/podinfo.slice", "/machine.slice/machine-libpod_pod_0123.slice", "/system.slice/web-pod.slice"})
    EXPECT_FALSE(is_kubelets(path)) << path;
}

struct OwnerCase {
  std::string path;
  CgroupOwner owner;
  std::string spell_out;
};

TEST(CgroupIdentifier, TellsOwnersApart) {
  FakeHost host{
      cgroup_v2({dir("system.slice", {dir("web.service", {dir("worker")}), dir("box.service", {dir("w")})})}),
      dir("run/systemd/system")};
  const auto unit = host.path() / "sys/fs/cgroup/system.slice/box.service";
  // systemd sets trusted.delegate (as root) and user.delegate; file systems of test folders may take neither.
  const bool marked = ::setxattr(unit.c_str(), "user.delegate", "1", 1, 0) == 0 ||
                      ::setxattr(unit.c_str(), "trusted.delegate", "1", 1, 0) == 0;
  const CgroupOwner in_box = marked ? CgroupOwner::Delegated : CgroupOwner::Unmanaged;
  const CgroupIdentifier identifier(host.root(), *host.layout());
  const std::string user = "/user.slice/user-1000.slice/user@1000.service";
  const std::string docker = "/system.slice/docker-" + kId + ".scope";
  const OwnerCase cases[] = {
      {"/", CgroupOwner::Unmanaged, ""},
      {"/system.slice/web.service", CgroupOwner::Systemd, ""},
      {"/system.slice", CgroupOwner::Systemd, ""},
      {docker, CgroupOwner::Systemd, ""},
      {"/machine.slice/machine-qemu\\x2d1\\x2dweb.scope", CgroupOwner::Systemd, ""},
      {"/system.slice/web.service/worker", CgroupOwner::Unmanaged, ""},
      {"/system.slice/box.service/w", in_box, ""},
      {"/system.slice/box.service/libpod-payload-" + kId, in_box, ""},
      {"/docker/" + kId, CgroupOwner::Unmanaged, ""},
      {"/jobs/docker-" + kId, CgroupOwner::Unmanaged, ""},
      {"/lxc.payload.web", CgroupOwner::Unmanaged, ""},
      {"/kubepods.slice/kubepods-pod1.slice/x.scope", CgroupOwner::Kubelet, ""},
      {"/kubepods/burstable", CgroupOwner::Kubelet, ""},
      {"/pods.slice/pods-kubepods.slice/cri-containerd-" + kId + ".scope", CgroupOwner::Kubelet, ""},
      // Made by nobody that is known.
      {"/web", CgroupOwner::Unknown, "/web"},
      {"/web/worker", CgroupOwner::Unknown, "/web"},
      {"/system.slice/byhand/x", CgroupOwner::Unknown, "/system.slice/byhand"},
      {"/" + kId, CgroupOwner::Unknown, "/" + kId},
      {"/garden/4d3c/" + kId, CgroupOwner::Unknown, "/garden"},
      {"/docker", CgroupOwner::Unknown, "/docker"},
      {"/made/by/hand.service", CgroupOwner::Unknown, "/made"},
      // Another manager's: a user's systemd, a container's.
      {user + "/app.slice/x.service", CgroupOwner::Unknown, user + "/"},
      {user + "/docker-" + kId + ".scope", CgroupOwner::Unknown, user + "/"},
      {user + "/made", CgroupOwner::Unknown, user + "/"},
      {"/system.slice/box.service/x.scope", CgroupOwner::Unknown, "/system.slice/box.service/"},
      {docker + "/system.slice/web.service", CgroupOwner::Unknown, docker + "/"},
      {docker + "/init", CgroupOwner::Unknown, docker + "/"},
      {"/docker/" + kId + "/docker/" + kOther, CgroupOwner::Unknown, "/docker/" + kId + "/"},
      {"/lxc.payload.web/system.slice/web.service", CgroupOwner::Unknown, "/lxc.payload.web/"},
      {"/lxc.payload.web/docker/" + kId, CgroupOwner::Unknown, "/lxc.payload.web/"},
  };
  for (const auto& c : cases) {
    const auto got = identifier.owner_of(c.path);
    EXPECT_EQ(got.owner, c.owner) << c.path;
    EXPECT_EQ(got.spell_out, c.spell_out) << c.path;
    EXPECT_EQ(got.doubt.empty(), c.owner != CgroupOwner::Unknown) << c.path;
  }
}

TEST(CgroupIdentifier, NamesUnitsOfTheSystemsSystemdOnly) {
  FakeHost host{cgroup_v2({}), dir("run/systemd/system")};
  CgroupIdentifier identifier(host.root(), *host.layout());
  EXPECT_EQ(identifier.describe("/system.slice/web.service", 1).unit, "web.service");
  EXPECT_EQ(identifier.describe("/kubepods.slice", 1).unit, "kubepods.slice");
  for (const std::string path : {"/lxc.payload.a/system.slice/web.service", "/made/web.service",
                                 "/user.slice/user-1.slice/user@1.service/web.service"})
    EXPECT_EQ(identifier.describe(path, 1).unit, "") << path;
}

TEST(CgroupIdentifier, KnowsNoUnitsWithoutSystemd) {
  FakeHost host{cgroup_v2({dir("system.slice", {dir("web.service")})})};
  CgroupIdentifier identifier(host.root(), *host.layout());
  const auto target = identifier.describe("/system.slice/web.service", 42);
  EXPECT_EQ(target.owner, CgroupOwner::Unknown);
  EXPECT_EQ(target.spell_out, "/system.slice");
  EXPECT_EQ(target.unit, "");
  EXPECT_EQ(target.name, "/system.slice/web.service");
  EXPECT_EQ(target.id, (TargetId{TargetKind::Cgroup, 42}));
}

}  // namespace
}  // namespace flash
