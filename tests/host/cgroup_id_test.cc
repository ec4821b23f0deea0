#include "host/cgroup_id.h"

#include <gtest/gtest.h>
#include <sys/xattr.h>

#include "tests/support/fake_host.h"

namespace flash {
namespace {

const std::string kId = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
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
  };
  for (const auto& c : cases) {
    const auto container = container_of(c.path);
    EXPECT_EQ(container.runtime, c.runtime) << c.path;
    EXPECT_EQ(container.id, kId) << c.path;
    EXPECT_EQ(container.name, "0123456789ab") << c.path;
    EXPECT_EQ(container.pod_uid, c.pod_uid) << c.path;
  }
}

TEST(ContainerOf, LeavesOtherCgroupsAlone) {
  for (const std::string& path :
       {std::string("/"), std::string(), std::string("/docker"), "/" + kId, "/docker/" + kId + "/init.scope",
        "/docker/" + kId.substr(1), "/machine.slice/libpod-conmon-" + kId + ".scope",
        "/machine.slice/libpod-" + kId + ".scope/container",
        "/system.slice/docker-" + kId.substr(2) + "zz.scope", std::string("/system.slice/docker-.scope"),
        std::string("/system.slice/crio-"), "/kubepods/pod" + kUid})
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

TEST(DockerName, IsTheOneWithASlash) {
  EXPECT_EQ(docker_name(R"({"MountPoints":{"/d":{"Name":"volume"}},"Name":"/web-1","Env":["x"]})"), "web-1");
}
TEST(DockerName, IsNotTakenFromInsideAString) {
  EXPECT_EQ(docker_name(R"({"Env":["J={\"Name\":\"/evil\"}"],"Name":"/web"})"), "web");
}
TEST(DockerName, RefusesWhatDockerWouldNotAccept) {
  EXPECT_FALSE(docker_name(R"({"Name":"/a b"})"));
  EXPECT_FALSE(docker_name(R"({"Name":"/"})"));
  EXPECT_FALSE(docker_name(R"({"Name":"/unfinished)"));
  EXPECT_FALSE(docker_name(""));
}

TEST(CgroupIdentifier, TellsOwnersApart) {
  FakeHost host{
      cgroup_v2({dir("system.slice", {dir("web.service", {dir("worker")}), dir("box.service", {dir("w")})})}),
      dir("run/systemd/system")};
  const auto unit = host.path() / "sys/fs/cgroup/system.slice/box.service";
  // systemd sets trusted.delegate (as root) and user.delegate; file systems of test folders may take neither.
  const bool marked = ::setxattr(unit.c_str(), "user.delegate", "1", 1, 0) == 0 ||
                      ::setxattr(unit.c_str(), "trusted.delegate", "1", 1, 0) == 0;
  const CgroupIdentifier identifier(host.root(), *host.layout());
  EXPECT_EQ(identifier.owner_of("/system.slice/web.service"), CgroupOwner::Systemd);
  EXPECT_EQ(identifier.owner_of("/system.slice"), CgroupOwner::Systemd);
  EXPECT_EQ(identifier.owner_of("/system.slice/web.service/worker"), CgroupOwner::Unmanaged);
  EXPECT_EQ(identifier.owner_of("/system.slice/box.service/w"),
            marked ? CgroupOwner::Delegated : CgroupOwner::Unmanaged);
  EXPECT_EQ(identifier.owner_of("/system.slice/docker-" + kId + ".scope"), CgroupOwner::Systemd);
  EXPECT_EQ(identifier.owner_of("/docker/" + kId), CgroupOwner::Unmanaged);
  EXPECT_EQ(identifier.owner_of("/kubepods.slice/kubepods-pod1.slice/x.scope"), CgroupOwner::Kubelet);
  EXPECT_EQ(identifier.owner_of("/kubepods/burstable"), CgroupOwner::Kubelet);
  EXPECT_EQ(identifier.owner_of("/"), CgroupOwner::Unmanaged);
}

TEST(CgroupIdentifier, KnowsNoUnitsWithoutSystemd) {
  FakeHost host{cgroup_v2({dir("system.slice", {dir("web.service")})})};
  const CgroupIdentifier identifier(host.root(), *host.layout());
  const auto target = identifier.describe("/system.slice/web.service", 42);
  EXPECT_EQ(target.owner, CgroupOwner::Unmanaged);
  EXPECT_EQ(target.unit, "");
  EXPECT_EQ(target.name, "/system.slice/web.service");
  EXPECT_EQ(target.id, (TargetId{TargetKind::Cgroup, 42}));
}

TEST(CgroupIdentifier, NamesDockerContainersAsDockerDoes) {
  FakeHost host{cgroup_v2({dir("docker")}), dir("run/systemd/system"),
                file("var/lib/docker/containers/" + kId + "/config.v2.json", R"({"ID":"x","Name":"/shop"})")};
  const CgroupIdentifier identifier(host.root(), *host.layout());
  EXPECT_EQ(identifier.describe("/docker/" + kId, 1).name, "shop");
  EXPECT_EQ(identifier.describe("/machine.slice/libpod-" + kId + ".scope", 1).name, "0123456789ab");
  EXPECT_EQ(identifier.describe("/system.slice/web.service", 1).name, "web.service");
}

}  // namespace
}  // namespace flash
