#include "host/container_files.h"

#include <gtest/gtest.h>

namespace flash {
namespace {

std::string docker_name(std::string_view json) {
  const auto record = docker_container(json);
  return record ? record->name : "malformed";
}

TEST(DockerContainer, ItsNameIsTheOneWithASlashAtTheTop) {
  EXPECT_EQ(docker_name(R"({"MountPoints":{"/d":{"Name":"/volume"}},"Name":"/web-1","Env":["x"]})"), "web-1");
  EXPECT_EQ(docker_name(R"({"Env":["J={\"Name\":\"/evil\"}"],"Name":"/web"})"), "web");
  EXPECT_EQ(docker_name("{ \"Name\" : \"\\/web\" }"), "web") << "however it is written";
  EXPECT_EQ(docker_name(R"([{"Name":"/web"}])"), "");
}
TEST(DockerContainer, RefusesWhatDockerWouldNotAccept) {
  for (const char* name : {"/a b", "/", "web", "/.web", "/a/b", "/a\\u001b[2J", "/\\u00e9"})
    EXPECT_EQ(docker_name(std::string("{\"Name\":\"") + name + "\"}"), "") << name;
  EXPECT_EQ(docker_name("{\"Name\":\"/" + std::string(254, 'a') + "\"}"), "");
}
TEST(DockerContainer, MalformedSaysNothing) {
  for (const char* text :
       {"", "{", R"({"Name":"/unfinished)", R"({"Name":"/web"} x)", "{\"Name\":\"/w\",}", "nul"})
    EXPECT_FALSE(docker_container(text)) << text;
  EXPECT_FALSE(docker_container(std::string(100000, '[')));
}
TEST(DockerContainer, ALabelTellsThatItIsAPodS) {
  const auto record = docker_container(
      R"({"Name":"/k8s_web","Config":{"Labels":{"io.kubernetes.pod.uid":"12345678-9abc","x":"y"}}})");
  ASSERT_TRUE(record);
  EXPECT_TRUE(record->in_pod);
  EXPECT_EQ(record->pod_uid, "12345678-9abc");
  EXPECT_FALSE(docker_container(R"({"Name":"/web","Config":{"Labels":{"a":"b"}}})")->in_pod);
}

TEST(OciContainer, NamesAsEachEngineKeepsThem) {
  struct {
    const char *annotations, *name;
    bool in_pod;
  } cases[] = {
      {R"("io.kubernetes.cri.container-name":"web","io.kubernetes.cri.sandbox-uid":"u1")", "web", true},
      {R"("io.kubernetes.cri.container-type":"sandbox","io.kubernetes.cri.sandbox-name":"pod-1")", "pod-1",
       true},
      {R"("io.kubernetes.container.name":"web","io.kubernetes.pod.uid":"u1")", "web", true},
      {R"("nerdctl/name":"web","nerdctl/namespace":"default")", "web", false},
      {R"("io.container.manager":"libpod")", "", false},
      {R"("nerdctl/name":"a b")", "", false},
      {R"("nerdctl/name":7)", "", false},
  };
  for (const auto& c : cases) {
    const auto record =
        oci_container(std::string(R"({"ociVersion":"1.0.2","annotations":{)") + c.annotations + "}}");
    ASSERT_TRUE(record) << c.annotations;
    EXPECT_EQ(record->name, c.name) << c.annotations;
    EXPECT_EQ(record->in_pod, c.in_pod) << c.annotations;
  }
}
TEST(OciContainer, TellsWhereDockerKeepsItsData) {
  const auto record = oci_container(
      R"({"mounts":[{"source":"proc"},{"source":"/srv/d/containers/ab/hostname"}],"linux":{"cgroupsPath":"/a/b"}})");
  ASSERT_TRUE(record);
  EXPECT_EQ(record->data_dir, "/srv/d/containers/ab");
  EXPECT_EQ(record->cgroup, "/a/b");
  EXPECT_EQ(oci_container(R"({"mounts":[{"source":"/srv/../etc/hostname"}]})")->data_dir, "");
}

TEST(StorageNames, FirstNameOfEachId) {
  const auto names = storage_names(
      R"([{"id":"aa","names":["web","alias"],"metadata":"{\"id\":\"bb\"}"},{"id":"cc"},{"names":["lost"]},
          {"id":"dd","names":["a b","db"],"flags":{"id":"ee"}}])");
  ASSERT_TRUE(names);
  EXPECT_EQ(*names, (std::unordered_map<std::string, std::string>{{"aa", "web"}, {"dd", "db"}}));
  EXPECT_FALSE(storage_names("[{\"id\":\"aa\""));
  EXPECT_TRUE(storage_names("[]")->empty());
}

TEST(DockerDataRoot, NewAndOldKey) {
  EXPECT_EQ(docker_data_root(R"({"data-root":"/srv/docker"})"), "/srv/docker");
  EXPECT_EQ(docker_data_root(R"({"graph":"/old"})"), "/old");
  EXPECT_EQ(docker_data_root(R"({"graph":"/old","data-root":"/new"})"), "/new");
  EXPECT_EQ(docker_data_root("{}"), "");
  EXPECT_EQ(docker_data_root(R"({"data-root":"relative"})"), "");
  EXPECT_EQ(docker_data_root(R"({"data-root":"/a/../b"})"), "");
  EXPECT_EQ(docker_data_root(R"({"x":{"data-root":"/a"}})"), "");
  EXPECT_FALSE(docker_data_root("data-root=/a"));
}

TEST(TomlPath, OneKeyOfOneTable) {
  const char* text =
      "# state = \"/no\"\r\nroot = '/r'\n state=\"/run/x\" # here\n[storage]\nstate = \"/other\"\n"
      "graphroot = \"/srv/pod#man\"\nrunroot = relative\n[storage.options]\ngraphroot = \"/wrong\"\n";
  EXPECT_EQ(toml_path(text, "", "state"), "/run/x");
  EXPECT_EQ(toml_path(text, "", "root"), "/r");
  EXPECT_EQ(toml_path(text, "storage", "graphroot"), "/srv/pod#man");
  EXPECT_EQ(toml_path(text, "storage", "state"), "/other");
  EXPECT_FALSE(toml_path(text, "storage", "runroot"));
  EXPECT_FALSE(toml_path(text, "", "graphroot"));
  EXPECT_FALSE(toml_path("state = \"/a/../b\"", "", "state"));
  EXPECT_FALSE(toml_path("state = \"/a", "", "state"));
}

}  // namespace
}  // namespace flash
