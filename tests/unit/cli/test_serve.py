"""Options of `rota serve`."""

from click.testing import CliRunner

from rota.cli.serve import serve


def test_the_address_of_a_ray_is_for_the_backend_ray(tmp_path):
    state = tmp_path / "state"
    config = tmp_path / "rota.yaml"
    config.write_text("backend: slurm\nray: {poll_s: 2}\n")
    options = ["--config", str(config), "--state", str(state), "--ray-address", "head:6379"]
    done = CliRunner().invoke(serve, options)
    assert done.exit_code == 2
    assert "--ray-address is for --backend ray, not slurm" in done.output
    assert not state.exists()
