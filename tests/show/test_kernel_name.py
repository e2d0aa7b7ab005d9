import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.show.kernel_name import MAX_LENGTH, kernel_name


@pytest.mark.parametrize(
    ("whole", "short"),
    [
        ("ampere_sgemm_128x64_tn", "ampere_sgemm_128x64_tn"),
        ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
        (
            "void at::native::vectorized_kernel<4, at::native::Add<float>, at::Array<char*, 3> >(int, float*)",
            "vectorized_kernel<4, Add<float>, Array<char*, 3>>",
        ),
        (
            "void (anonymous namespace)::softmax_warp_forward<float, float, 8, false>(float*, float const*, int)",
            "softmax_warp_forward<float, float, 8, false>",
        ),
        (
            "void at::unrolled<at::f(at::It&)::{lambda(float)#1}>(at::f(at::It&)::{lambda(float)#1}, int)",
            "unrolled<f(It&)::{lambda(float)#1}>",
        ),
        ("fill(int*)", "fill"),
        ("(weird)", "(weird)"),
        ("", ""),
    ],
)
def test_a_kernel_is_called_by_what_a_person_knows_it_by(whole: str, short: str) -> None:
    assert kernel_name(whole) == short


@given(st.text("ab:<>(), &{}", max_size=60))
def test_any_name_has_a_short_one_that_is_no_longer(name: str) -> None:
    assert len(kernel_name(name)) <= len(name)
    assert bool(kernel_name(name)) is bool(name.strip())


def test_an_endless_name_is_cut_before_it_is_read() -> None:
    assert len(kernel_name("a::<(" * 10**6)) <= MAX_LENGTH
